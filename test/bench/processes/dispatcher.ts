// The real `dispatch` command in a process of its own.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pidOf } from "./asking.ts";

export type DispatcherOptions = {
  readonly databaseUrl: string;
  readonly receiverPort: number;
  readonly caFile: string;
  readonly inFlightMax: number;
  readonly env: Readonly<Record<string, string>>;
  /** Flags of Node. */
  readonly execArgv: readonly string[];
  /** In place of the real command. */
  readonly program?: string | undefined;
  /** Where its standard output goes, as to an operator's log. */
  readonly outputFile?: string | undefined;
  /** Reads its metrics so often. */
  readonly scrapeEveryMs?: number | undefined;
};

export type RunningDispatcher = {
  readonly pid: number;
  /** What it said: nothing, unless something went wrong (the level is `warn`). */
  readonly lines: readonly string[];
  /** As an operator does: what is under way is finished first. */
  stop(): Promise<void>;
  /** Without waiting for receivers that never answer. */
  kill(): Promise<void>;
};

/** The key that the accounts' secrets were sealed with. */
export const SECRETS_KEY = Buffer.alloc(32, 7);

const MAIN = fileURLToPath(new URL("../../../src/main.ts", import.meta.url));

/** Resolves when it says that it is ready. */
export async function startDispatcher(options: DispatcherOptions): Promise<RunningDispatcher> {
  const output = options.outputFile === undefined ? "pipe" : openSync(options.outputFile, "a");
  const child = fork(options.program ?? MAIN, ["dispatch"], {
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      DATABASE_URL: options.databaseUrl,
      SECRETS_KEY: SECRETS_KEY.toString("base64"),
      TARGET_CA_FILE: options.caFile,
      UNSAFE_ALLOWED_TARGETS: `*.many.localhost:${options.receiverPort}`,
      DISPATCH_IN_FLIGHT_MAX: String(options.inFlightMax),
      LOG_LEVEL: "warn",
      METRICS_PORT: "0",
      ...options.env,
    },
    execArgv: [...options.execArgv],
    stdio: ["ignore", output, "pipe", "ipc"],
  });
  if (typeof output === "number") closeSync(output);
  const lines: string[] = [];
  for (const output of [child.stdout, child.stderr]) {
    output?.setEncoding("utf8").on("data", (text: string) => lines.push(...text.trimEnd().split("\n")));
  }
  const ended = once(child, "exit").then(() => {
    throw new Error(`The dispatcher has ended by itself. It said:\n${lines.slice(-20).join("\n")}`);
  });
  const [ready] = await Promise.race([once(child, "message"), ended]);
  ended.catch(() => undefined);
  if (options.scrapeEveryMs !== undefined) scrape(child, (ready as Ready).metrics, options.scrapeEveryMs);
  return {
    pid: pidOf(child),
    lines,
    stop: () => end(child, "SIGTERM"),
    kill: () => end(child, "SIGKILL"),
  };
}

type Ready = { readonly metrics: string };

/** As a monitor does, until the process ends. */
function scrape(child: ChildProcess, metricsUrl: string, everyMs: number): void {
  const timer = setInterval(() => {
    fetch(`${metricsUrl}/metrics`)
      .then((response) => response.arrayBuffer())
      .catch(() => undefined);
  }, everyMs);
  child.once("exit", () => clearInterval(timer));
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
}
