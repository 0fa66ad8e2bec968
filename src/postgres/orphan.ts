import { execFile } from "node:child_process";
import { readFile, readlink, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A fast shutdown writes a checkpoint first, which can take seconds on a slow disk. */
export const SHUTDOWN_TIMEOUT_MS = 30_000;
const POLL_MS = 50;

/**
 * Stops a server that outlived the process that started it. Call it only as the folder's owner: then no live
 * process uses that server. It is not adopted, because its settings and log belonged to the dead process.
 */
export async function endOrphan(data: string, log: (line: string) => void): Promise<void> {
  const pidFile = join(data, "postmaster.pid");
  const pid = await readServerPid(pidFile);
  if (pid === null) return;
  if (!(await isServerOf(pid, data))) {
    // After a crash in a container the pid may be another process's, and PostgreSQL would refuse to start.
    await rm(pidFile, { force: true });
    return;
  }
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
