import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { childrenOf } from "./child-processes.ts";

/** A separate process that owns an embedded PostgreSQL. */
export type Owner = {
  readonly pid: number;
  readonly databaseUrl: string;
  /** Ends the process alone, as a crash does. */
  kill(): Promise<void>;
  /** Ends it together with the shell that keeps the server, so that nothing is left that would stop the server. */
  killWithKeeper(): Promise<void>;
};

const EMBEDDED = new URL("../../src/base/embedded/embedded.ts", import.meta.url).href;

const SCRIPT = `
const [moduleUrl, options] = process.argv.slice(1);
const { startEmbeddedPostgres } = await import(moduleUrl);
try {
  const { databaseUrl } = await startEmbeddedPostgres(JSON.parse(options));
  console.log(databaseUrl);
  setInterval(() => {}, 1_000_000);
} catch (error) {
  console.log(error.name + ": " + error.message);
}`;

export type OwnerOptions = {
  readonly dataDir: string;
  readonly settings?: Readonly<Record<string, string>>;
  readonly nativeFolder?: string;
};

export type OwnerProcess = {
  readonly moduleUrl?: string;
  readonly execPath?: string;
  readonly uid?: number;
  readonly gid?: number;
};

/** Starts one; rethrows its error. */
export async function startOwner(options: OwnerOptions, from: OwnerProcess = {}): Promise<Owner> {
  const { moduleUrl = EMBEDDED, execPath = process.execPath, ...ids } = from;
  const child = spawn(
    execPath,
    ["--input-type=module", "--eval", SCRIPT, "--", moduleUrl, JSON.stringify(options)],
    { ...ids, cwd: "/", stdio: ["ignore", "pipe", "inherit"] },
  );
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  if (!line.startsWith("postgres://")) throw new Error(line);
  const pid = child.pid ?? 0;
  const kill = async () => {
    const exited = hasExited(child);
    child.kill("SIGKILL");
    await exited;
  };
  return {
    pid,
    databaseUrl: line,
    kill,
    killWithKeeper: async () => {
      const [keeper] = childrenOf(pid);
      if (keeper === undefined) throw new Error("The server has no keeper.");
      const shells = await Promise.all(childrenOf(keeper).map(isShell));
      for (const shell of shells) if (shell !== null) process.kill(shell, "SIGKILL");
      process.kill(keeper, "SIGKILL");
      await kill();
    },
  };
}

async function hasExited(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

async function isShell(pid: number): Promise<number | null> {
  return (await readFile(`/proc/${pid}/cmdline`, "utf8")).startsWith("/bin/sh\0") ? pid : null;
}
