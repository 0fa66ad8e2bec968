import { execFile } from "node:child_process";
import { readFile, readlink, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { type Folders, PORT } from "./folders.ts";

const run = promisify(execFile);

/** A fast shutdown writes a checkpoint first, which can take seconds on a slow disk. */
export const SHUTDOWN_TIMEOUT_MS = 30_000;
const POLL_MS = 50;

/**
 * Stops a server that outlived the process that started it, and removes what a killed one left. Call it only as the
 * folders' owner: then no live process uses that server. It is not adopted, because its settings and log belonged to
 * the dead process.
 */
export async function endOrphan(
  { data, sockets }: Pick<Folders, "data" | "sockets">,
  log: (line: string) => void,
): Promise<void> {
  const pidFile = join(data, "postmaster.pid");
  const pid = await readServerPid(pidFile);
  if (pid !== null && (await isServerOf(pid, data))) await endServer(pid, data, log);
  // They name its pid, which may be another process's by now, or that of one that nobody has waited for yet: then
  // PostgreSQL would refuse to start.
  const socket = join(sockets, `.s.PGSQL.${PORT}`);
  for (const left of [pidFile, socket, `${socket}.lock`]) await rm(left, { force: true });
}

async function endServer(pid: number, data: string, log: (line: string) => void): Promise<void> {
  const pidFile = join(data, "postmaster.pid");
  log(`stopping a PostgreSQL server (process ${pid}) that outlived the process that started it`);
  signal(pid, "SIGINT");
  if (await hasEnded(pid, data, pidFile)) return;
  signal(pid, "SIGQUIT");
  if (await hasEnded(pid, data, pidFile)) return;
  throw new Error(`The PostgreSQL server on ${data} (process ${pid}) does not stop.`);
}

/** The pid in the first line of postmaster.pid; null if there is no such file, so no server. */
export async function readServerPid(pidFile: string): Promise<number | null> {
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
