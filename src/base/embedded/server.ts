import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, readlink, rm } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Account, CHILD_ENVIRONMENT } from "./account.ts";

const run = promisify(execFile);

/** The folders of an embedded server. */
export type Folders = {
  /** The database cluster, as created by initdb. */
  readonly data: string;
  /** Whether the account that PostgreSQL runs as can open `data` by its path. */
  readonly isReachable: boolean;
  /** Sockets by which owners detect each other. */
  readonly owners: string;
  /** The server's socket. The folder's mode 0700 keeps other users out. */
  readonly sockets: string;
};

/** The server listens on no port: this is in its socket's name. */
export const PORT = 5432;
/** On Linux a process can always use its working directory, even where its account may not enter the path to it. */
export function nameFromInside(folder: string, isReachable: boolean): string {
  return isReachable ? folder : "/proc/self/cwd";
}

/** A fast shutdown writes a checkpoint first, which can take seconds on a slow disk. */
const SHUTDOWN_TIMEOUT_MS = 30_000;
const POLL_MS = 50;

/**
 * Stops a server that outlived the process that started it, and removes what a killed one left. Only for the folders'
 * owner. It is not adopted, because its settings and log belonged to the dead process.
 */
export async function endOrphan(
  { data, sockets }: Pick<Folders, "data" | "sockets">,
  log: (line: string) => void,
): Promise<void> {
  const pidFile = join(data, "postmaster.pid");
  const pid = await readServerPid(pidFile);
  if (pid !== null && (await isServerOf(pid, data))) {
    log(`stopping a PostgreSQL server (process ${pid}) that outlived the process that started it`);
    signal(pid, "SIGINT");
    if (!(await hasEnded(pid, data, pidFile))) signal(pid, "SIGQUIT");
    if (!(await hasEnded(pid, data, pidFile))) {
      throw new Error(`The PostgreSQL server on ${data} (process ${pid}) does not stop.`);
    }
  }
  // They name its pid, which may be another process's by now, or that of one that nobody has waited for yet: then
  // PostgreSQL would refuse to start.
  const socket = join(sockets, `.s.PGSQL.${PORT}`);
  for (const left of [pidFile, socket, `${socket}.lock`]) await rm(left, { force: true });
}

/** The pid in the first line of postmaster.pid; null if there is no such file, so no server. */
async function readServerPid(pidFile: string): Promise<number | null> {
  const text = await readFile(pidFile, "utf8").catch(() => "");
  const pid = Number.parseInt(text, 10);
  return pid > 0 ? pid : null;
}

/** A server's working directory is its data folder. Without /proc, the process name has to do. */
async function isServerOf(pid: number, data: string): Promise<boolean> {
  if (process.platform === "linux") {
    return (await readlink(`/proc/${pid}/cwd`).catch(() => null)) === data;
  }
  const { stdout } = await run("ps", ["-o", "comm=", "-p", String(pid)]).catch(() => ({ stdout: "" }));
  return stdout.includes("postgres");
}

async function hasEnded(pid: number, data: string, pidFile: string): Promise<boolean> {
  for (let waitedMs = 0; waitedMs < SHUTDOWN_TIMEOUT_MS; waitedMs += POLL_MS) {
    if ((await readServerPid(pidFile)) !== pid || !(await isServerOf(pid, data))) return true;
    await sleep(POLL_MS);
  }
  return false;
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has already exited.
  }
}

export type Server = {
  /** Resolves when the server has exited, by `stop` or by itself. */
  readonly ended: Promise<void>;
  /** Disconnects all sessions and stops the server, which keeps what was committed; resolves when it has exited. */
  stop(): Promise<void>;
};

const START_TIMEOUT_MS = 60_000;
const KEPT_LINES = 20;

/**
 * The server is a child of this shell, which shuts it down at EOF on stdin, a pipe that the kernel closes when we die,
 * even by SIGKILL. `setpriv --pdeathsig` would replace the shell, but is Linux-only.
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
  /** The folder of the programs. */
  readonly binaries: string;
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
  const command = [join(binaries, "postgres"), "-D", nameFromInside(data, isReachable), "-p", String(PORT)];
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
  // Rejects where there is no child.
  const ended = once(child, "exit").then(ignore, ignore);
  child.stdin?.on("error", ignore);
  await becomesReady(child, ended, log);
  return { ended, stop: () => stopServer(child, ended, join(data, "postmaster.pid")) };
}

function ignore(): void {}

async function becomesReady(
  child: ChildProcess,
  ended: Promise<void>,
  log: (line: string) => void,
): Promise<void> {
  const lines = createInterface({ input: child.stderr! });
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
  if (result === "silent") await ended;
  const fault = result === "silent" ? `was not ready after ${START_TIMEOUT_MS} ms` : "did not start";
  throw new Error(`PostgreSQL ${fault}. Its log:\n${kept.join("\n")}`);
}

async function stopServer(child: ChildProcess, ended: Promise<void>, pidFile: string): Promise<void> {
  child.stdin?.end();
  const timer = setTimeout(async () => {
    const pid = await readServerPid(pidFile);
    // An immediate shutdown: nothing committed is lost, the next start replays the WAL.
    if (pid !== null) signal(pid, "SIGQUIT");
  }, SHUTDOWN_TIMEOUT_MS);
  await ended;
  clearTimeout(timer);
}
