// The real `dispatch` command in a process of its own.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
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
  const child = fork(MAIN, ["dispatch"], {
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
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  const lines: string[] = [];
  for (const output of [child.stdout, child.stderr]) {
    output?.setEncoding("utf8").on("data", (text: string) => lines.push(...text.trimEnd().split("\n")));
  }
  const ended = once(child, "exit").then(() => {
    throw new Error(`The dispatcher has ended by itself. It said:\n${lines.slice(-20).join("\n")}`);
  });
  await Promise.race([once(child, "message"), ended]);
  ended.catch(() => undefined);
  return {
    pid: pidOf(child),
    lines,
    stop: () => end(child, "SIGTERM"),
    kill: () => end(child, "SIGKILL"),
  };
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
}
