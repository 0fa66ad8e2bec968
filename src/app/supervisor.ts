import { fork } from "node:child_process";
import { once } from "node:events";
import type { Config } from "../base/config/config.ts";
import { abortableDelay, createBackoff } from "../base/model/backoff.ts";
import { MAIN_FILE, type ProcessContext } from "./process-context.ts";

/** A process that is kept running. */
export type ChildPlan = {
  readonly name: string;
  /** Absent: this program. */
  readonly file?: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** File descriptor that gets the child's output; absent: our own output. */
  readonly output?: number;
};

/**
 * Something that happened to a child. `send` sends a message to it, and does nothing once it has ended. `how` is
 * `exit code 1`, `SIGKILL`, or why it could not be started. `restartInMs`: null when it is not restarted.
 */
export type ChildEvent = { readonly name: string } & (
  | {
      readonly kind: "started";
      readonly pid: number;
      readonly send: (message: Readonly<Record<string, unknown>>) => void;
    }
  | { readonly kind: "message"; readonly pid: number; readonly message: unknown }
  | { readonly kind: "ended"; readonly how: string; readonly restartInMs: number | null }
);

export type SupervisorOptions = {
  readonly children: readonly ChildPlan[];
  /** Once aborted, the children get a SIGTERM and none is restarted. */
  readonly shutdown: AbortSignal;
  readonly onEvent: (event: ChildEvent) => void;
  /** Milliseconds between a child's SIGTERM and its SIGKILL. */
  readonly graceMs: number;
  /** Uniform in [0, 1), for the jitter of restarts. */
  readonly random: () => number;
};

const RESTART_BACKOFF = { baseMs: 500, maxMs: 30_000 };
/** After running this long, a child that ends is restarted with the shortest delay again. */
const STABLE_AFTER_MS = 10_000;
const USAGE_ERROR_EXIT_CODE = 2;

/** The processes of the service, besides its database. */
export function servicePlans(
  { env }: Pick<ProcessContext, "env">,
  config: Config,
  databaseUrl: string,
): ChildPlan[] {
  const { metricsPort } = config;
  const serviceEnv = { ...env, DATABASE_URL: databaseUrl, DATABASE_URL_FILE: "" };
  // Both cannot listen on one port; 0 is any free one for each.
  const dispatcherPort = metricsPort === 0 ? "0" : `${metricsPort + 1}`;
  const dispatcherEnv = { ...serviceEnv, METRICS_PORT: dispatcherPort };
  return [
    { name: "API", args: ["serve"], env: serviceEnv },
    { name: "dispatcher", args: ["dispatch"], env: dispatcherEnv },
  ];
}

/**
 * Keeps all children running until `shutdown` aborts or one of them ends with 2, a usage error that a restart does not
 * fix. Resolves, when all have ended, to the exit code for this process.
 *
 * Each child holds the other end of a channel to this process. It closes when this process ends, even by SIGKILL, and
 * then the child ends by itself (see endWithParent).
 */
export async function supervise(options: SupervisorOptions): Promise<number> {
  const givenUp = new AbortController();
  const shutdown = AbortSignal.any([options.shutdown, givenUp.signal]);
  const codes = await Promise.all(
    options.children.map(async (plan) => {
      const code = await keepRunning(plan, { ...options, shutdown });
      if (code !== 0) givenUp.abort();
      return code;
    }),
  );
  return Math.max(...codes);
}

async function keepRunning(plan: ChildPlan, options: SupervisorOptions): Promise<number> {
  const { shutdown, onEvent, random } = options;
  const backoff = createBackoff(RESTART_BACKOFF, random);
  while (!shutdown.aborted) {
    const startedAtMs = performance.now();
    const { code, how } = await runOnce(plan, options);
    if (performance.now() - startedAtMs > STABLE_AFTER_MS) backoff.reset();
    const isUsageError = code === USAGE_ERROR_EXIT_CODE && !shutdown.aborted;
    const restartInMs = isUsageError || shutdown.aborted ? null : backoff.nextMs();
    onEvent({ kind: "ended", name: plan.name, how, restartInMs });
    if (isUsageError) return USAGE_ERROR_EXIT_CODE;
    if (restartInMs !== null) await abortableDelay(restartInMs, shutdown);
  }
  return 0;
}

/** Resolves when the process has ended. */
async function runOnce(
  { name, file = MAIN_FILE, args, env, output }: ChildPlan,
  { shutdown, onEvent, graceMs }: SupervisorOptions,
): Promise<{ code: number | null; how: string }> {
  const outputTarget = output ?? "inherit";
  const child = fork(file, args, { env, stdio: ["ignore", outputTarget, outputTarget, "ipc"] });
  // A process that could not be started has no id, and its only event is the error.
  const pid = child.pid ?? 0;
  // A message that cannot be sent is for a process that ends.
  const send = (message: Readonly<Record<string, unknown>>) => void child.send(message, () => undefined);
  child.once("spawn", () => onEvent({ kind: "started", name, pid, send }));
  child.on("message", (message) => onEvent({ kind: "message", name, pid, message }));

  let killTimer: NodeJS.Timeout | undefined;
  const terminate = () => {
    child.kill("SIGTERM");
    killTimer = setTimeout(() => child.kill("SIGKILL"), graceMs);
  };
  shutdown.addEventListener("abort", terminate, { once: true });
  try {
    const [code, signal] = await once(child, "exit");
    return { code, how: signal ?? `exit code ${code}` };
  } catch (error) {
    return { code: null, how: (error as Error).message };
  } finally {
    shutdown.removeEventListener("abort", terminate);
    clearTimeout(killTimer);
  }
}
