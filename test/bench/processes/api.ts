// The real `serve` command in a process of its own.
import { fork } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pidOf } from "./asking.ts";
import { SECRETS_KEY } from "./dispatcher.ts";

export type RunningApi = {
  readonly pid: number;
  readonly url: string;
  stop(): Promise<void>;
};

const MAIN = fileURLToPath(new URL("../../../src/main.ts", import.meta.url));

/** Requests of a key in a minute. The default of 600 would end a measurement of anything at 10 a second. */
export const RAISED_RATE_LIMIT = 1_000_000;

export type ApiOptions = {
  readonly databaseUrl: string;
  /** Every request is logged there, as in production. */
  readonly logFile: string;
  /** Instead of the default. */
  readonly env: Readonly<Record<string, string>>;
};

/** Resolves when it listens. */
export async function startApi({ databaseUrl, logFile, env }: ApiOptions): Promise<RunningApi> {
  const output = openSync(logFile, "a");
  const child = fork(MAIN, ["serve"], {
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      DATABASE_URL: databaseUrl,
      SECRETS_KEY: SECRETS_KEY.toString("base64"),
      PORT: "0",
      METRICS_PORT: "0",
      ...env,
    },
    stdio: ["ignore", output, "inherit", "ipc"],
  });
  closeSync(output);
  const ended = once(child, "exit").then(([code, signal]) => {
    throw new Error(`The API has ended by itself (${signal ?? `code ${code}`}).`);
  });
  const [told] = (await Promise.race([once(child, "message"), ended])) as [{ listening: string }];
  ended.catch(() => undefined);
  return {
    pid: pidOf(child),
    url: told.listening,
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
    },
  };
}
