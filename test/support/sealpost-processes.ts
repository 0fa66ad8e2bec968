// Real command line processes on a test database.
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { startSealpost } from "./command.ts";
import type { TestDatabase } from "./database.ts";
import { SECRETS_KEY } from "./installation.ts";

export type RunningProcess = {
  readonly child: ChildProcess;
  /** What it told when it was ready, such as the address that it listens on. */
  readonly told: Readonly<Record<string, unknown>>;
  /** Everything that it wrote on standard error. */
  stderr(): string;
  /** Sends the signal, and resolves with the exit code (null: the signal ended it) once it has ended. */
  end(signal: "SIGTERM" | "SIGKILL"): Promise<number | null>;
};

/** Runs `serve` or `dispatch`, and resolves when it is ready. `root`: of a copy of the project. */
export async function startProcess(
  command: "serve" | "dispatch",
  database: TestDatabase,
  env: Record<string, string> = {},
  root?: string,
): Promise<RunningProcess> {
  const child = startSealpost([command], {
    ...(root !== undefined && { root }),
    stdio: ["ignore", "ignore", "pipe", "ipc"],
    env: {
      DATABASE_URL: database.url,
      SECRETS_KEY: SECRETS_KEY.toString("base64"),
      PORT: "0",
      METRICS_PORT: "0",
      LOG_LEVEL: "silent",
      ...env,
    },
  });
  let stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (text) => {
    stderr += text;
  });
  const closed = once(child, "close");
  const told = await Promise.race([
    once(child, "message").then(([message]) => message as Record<string, unknown>),
    closed.then(([code]) => Promise.reject(new Error(`${command} ended with ${code}: ${stderr}`))),
  ]);
  return {
    child,
    told,
    stderr: () => stderr,
    end: async (signal) => {
      child.kill(signal);
      const [code] = (await closed) as [number | null];
      return code;
    },
  };
}
