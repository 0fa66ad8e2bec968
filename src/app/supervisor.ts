import { type ChildProcess, fork } from "node:child_process";
import { abortableDelay, createBackoff } from "../schedule/backoff.ts";

/** A process that is kept running. */
export type ChildPlan = {
  readonly name: string;
  /** The program and what it is given. */
  readonly file: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Descriptor of the file that gets what it writes; left out: our own output. */
  readonly output?: number;
};

/** What the supervisor tells: one of these for each thing that happens to a child. */
export type ChildNews =
  | { readonly kind: "started"; readonly name: string; readonly pid: number }
  | { readonly kind: "told"; readonly name: string; readonly pid: number; readonly message: unknown }
  | {
      readonly kind: "ended";
      readonly name: string;
      /** `exit code 1`, `SIGKILL`, or why it could not be started. */
      readonly how: string;
      /** Null when it is not started again. */
      readonly againInMs: number | null;
    };

export type SupervisorOptions = {
  readonly children: readonly ChildPlan[];
  /** Once aborted, the children are asked to end and none is started again. */
  readonly asked: AbortSignal;
  readonly hear: (news: ChildNews) => void;
  /** Milliseconds from asking a child to end to ending it by force. */
  readonly graceMs: number;
  /** Uniform in [0, 1): spreads restarts out. */
  readonly random: () => number;
};

const RESTART_BACKOFF = { baseMs: 500, maxMs: 30_000 };
// A child that ran this long was well: the next start after its end is a fresh one.
const wellAfterMs = 10_000;
const mistakeExitCode = 2;

/**
 * Keeps all children running until it is asked to end or one of them ends with 2: that is a mistake which starting
 * again does not mend. Resolves, when all have ended, to the exit code for this process.
 *
 * The children hold the other end of a channel to this process: it closes when this process ends, even by
 * kill -9, and then they end by themselves (see endWithParent).
 */
export async function supervise(options: SupervisorOptions): Promise<number> {
  const gaveUp = new AbortController();
  const asked = AbortSignal.any([options.asked, gaveUp.signal]);
  const codes = await Promise.all(
    options.children.map(async (plan) => {
      const code = await keepRunning(plan, { ...options, asked });
      if (code !== 0) gaveUp.abort();
      return code;
    }),
  );
  return Math.max(...codes);
}

async function keepRunning(plan: ChildPlan, options: SupervisorOptions): Promise<number> {
  const { asked, hear } = options;
  const backoff = createBackoff(RESTART_BACKOFF, options.random);
  while (!asked.aborted) {
    const startedAtMs = performance.now();
    const { code, how } = await runOnce(plan, options);
    if (performance.now() - startedAtMs > wellAfterMs) backoff.reset();
    const isUsageError = code === mistakeExitCode && !asked.aborted;
    const againInMs = isUsageError || asked.aborted ? null : backoff.nextMs();
    hear({ kind: "ended", name: plan.name, how, againInMs });
    if (isUsageError) return mistakeExitCode;
    if (againInMs !== null) await abortableDelay(againInMs, asked);
  }
  return 0;
}

/** From one start to the end of the process. */
async function runOnce(
  { name, file, args, env, output }: ChildPlan,
  { asked, hear, graceMs }: SupervisorOptions,
): Promise<{ code: number | null; how: string }> {
  const writesTo = output ?? "inherit";
  const child = fork(file, args, { env, stdio: ["ignore", writesTo, writesTo, "ipc"] });
  // Without a process id there is no process, and nothing but its error is heard.
  const pid = child.pid ?? 0;
  child.once("spawn", () => hear({ kind: "started", name, pid }));
  child.on("message", (message) => hear({ kind: "told", name, pid, message }));
  const ended = untilEnded(child);

  let force: NodeJS.Timeout | undefined;
  const end = () => {
    child.kill("SIGTERM");
    force = setTimeout(() => child.kill("SIGKILL"), graceMs);
  };
  asked.addEventListener("abort", end, { once: true });
  try {
    return await ended;
  } finally {
    asked.removeEventListener("abort", end);
    clearTimeout(force);
  }
}

function untilEnded(child: ChildProcess): Promise<{ code: number | null; how: string }> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve({ code: null, how: error.message }));
    child.once("exit", (code, signal) => resolve({ code, how: signal ?? `exit code ${code}` }));
  });
}
