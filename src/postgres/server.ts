import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { type Account, CHILD_ENVIRONMENT } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { type Folders, nameFromInside, PORT } from "./folders.ts";
import { readServerPid, SHUTDOWN_TIMEOUT_MS } from "./orphan.ts";

/** A running server. */
export type Server = {
  /** Resolves when the server has exited, for whatever reason. */
  readonly ended: Promise<void>;
  /** A fast shutdown: sessions are disconnected, committed data is kept. */
  stop(): Promise<void>;
};

const START_TIMEOUT_MS = 60_000;
const KEPT_LINES = 20;

/**
 * The server is a child of this shell, which waits for EOF on stdin, a pipe that the kernel closes when we die, even
 * by SIGKILL. Then it requests a fast shutdown. `setpriv --pdeathsig` would replace the shell, but is Linux-only.
 */
const KEEPER = `
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
( read -r _ <&3; kill -INT "$server" ) 2>/dev/null >/dev/null &
watcher=$!
wait "$server"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
`;

/** A killed server's shared memory lingers for a moment; after that a retry succeeds. */
const REMAINS = "pre-existing shared memory block";
const REMAINS_TIMEOUT_MS = 10_000;
const REMAINS_POLL_MS = 200;

export type Launch = {
  readonly folders: Folders;
  readonly account: Account | null;
  readonly binaries: Binaries;
  readonly settings: Readonly<Record<string, string>>;
  readonly log: (line: string) => void;
};

/** Starts the server and resolves when it accepts connections. */
export async function launchServer(launch: Launch): Promise<Server> {
  for (let waitedMs = 0; ; waitedMs += REMAINS_POLL_MS) {
    try {
      return await launchOnce(launch);
    } catch (error) {
      const isRemains = error instanceof Error && error.message.includes(REMAINS);
      if (!isRemains || waitedMs >= REMAINS_TIMEOUT_MS) throw error;
      await sleep(REMAINS_POLL_MS);
    }
  }
}

async function launchOnce({ folders, account, binaries, settings, log }: Launch): Promise<Server> {
  const { data, isReachable } = folders;
  const command = [binaries.postgres, "-D", nameFromInside(data, isReachable), "-p", String(PORT)];
  const fixed = {
    listen_addresses: "",
    unix_socket_directories: folders.sockets,
    unix_socket_permissions: "0700",
    timezone: "UTC",
    log_timezone: "UTC",
  };
  for (const [name, value] of Object.entries({ ...settings, ...fixed }))
    command.push("-c", `${name}=${value}`);

  const child = spawn("/bin/sh", ["-c", KEEPER, "sh", ...command], {
    ...account,
    cwd: data,
    env: CHILD_ENVIRONMENT,
    // A session of its own: Ctrl-C in a terminal reaches only us, and we stop things in order.
    detached: true,
    stdio: ["pipe", "ignore", "pipe"],
  });
  const ended = new Promise<void>((resolve) => {
    child.once("exit", () => resolve());
    child.once("error", () => resolve());
  });
  child.stdin?.on("error", () => undefined);
  await becomesReady(child, ended, log);
  return { ended, stop: () => stopServer(child, ended, join(data, "postmaster.pid")) };
}

async function becomesReady(
  child: ChildProcess,
  ended: Promise<void>,
  log: (line: string) => void,
): Promise<void> {
  if (child.stderr === null) throw new Error("PostgreSQL was started without a pipe for its log.");
  const lines = createInterface({ input: child.stderr });
  const kept: string[] = [];
  const outcome = Promise.withResolvers<"ready" | "ended" | "silent">();
  const timer = setTimeout(() => outcome.resolve("silent"), START_TIMEOUT_MS);
  lines.on("line", (line) => {
    log(line);
    if (kept.length < KEPT_LINES) kept.push(line);
    if (line.includes("database system is ready to accept")) outcome.resolve("ready");
  });
  // `close` comes after the last line of output, so that the error can quote it.
  child.once("close", () => outcome.resolve("ended"));
  child.once("error", () => outcome.resolve("ended"));
  const result = await outcome.promise;
  clearTimeout(timer);
  if (result === "ready") return;
  child.stdin?.end();
  if (result === "silent") {
    await ended;
    throw new Error(`PostgreSQL was not ready after ${START_TIMEOUT_MS} ms. Its log:\n${kept.join("\n")}`);
  }
  throw new Error(`PostgreSQL did not start. Its log:\n${kept.join("\n")}`);
}

async function stopServer(child: ChildProcess, ended: Promise<void>, pidFile: string): Promise<void> {
  child.stdin?.end();
  const timer = setTimeout(async () => {
    const pid = await readServerPid(pidFile);
    // An immediate shutdown: nothing committed is lost, the next start replays the WAL.
    if (pid !== null) process.kill(pid, "SIGQUIT");
  }, SHUTDOWN_TIMEOUT_MS);
  await ended;
  clearTimeout(timer);
}
