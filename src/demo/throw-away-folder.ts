import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp } from "node:fs/promises";

export type ThrowAwayFolder = { readonly path: string; remove(): Promise<void> };

/**
 * This shell waits for the end of its standard input, a pipe that the kernel closes when we die, even by SIGKILL, and
 * removes the folder. A server that is still shutting down there may be writing, so it tries again for a while.
 */
const REMOVER = `
cat >/dev/null
tries=0
while ! rm -rf -- "$1" 2>/dev/null && [ "$tries" -lt 30 ]; do
  tries=$((tries + 1))
  sleep 1
done`;

/** A new folder that is gone again when this process is, however it ends. */
export async function makeThrowAwayFolder(): Promise<ThrowAwayFolder> {
  // Not the system's temporary folder: for root that is often a private one, which PostgreSQL's account cannot enter.
  const path = await mkdtemp("/tmp/sealpost-demo-");
  const remover = spawn("/bin/sh", ["-c", REMOVER, "sh", path], {
    cwd: "/",
    // A session of its own: Ctrl-C in a terminal reaches us, and not the one who cleans up after us.
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const removed = once(remover, "exit");
  await once(remover, "spawn");
  // Passing through is what PostgreSQL's account needs; what lies in it keeps its own modes.
  await chmod(path, 0o711);
  return {
    path,
    remove: async () => {
      remover.stdin?.end();
      await removed;
    },
  };
}
