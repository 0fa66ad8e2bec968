import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp } from "node:fs/promises";

export type TemporaryFolder = { readonly path: string; remove(): Promise<void> };

/**
 * A shell that removes the folder when its standard input ends: a pipe that the kernel closes when this process ends,
 * even by SIGKILL. A server may still be shutting down and writing there, so it retries for a while.
 */
const REMOVER = `
cat >/dev/null
tries=0
while ! rm -rf -- "$1" 2>/dev/null && [ "$tries" -lt 30 ]; do
  tries=$((tries + 1))
  sleep 1
done`;

/** A new folder that is removed when this process ends, however it ends. */
export async function createTemporaryFolder(): Promise<TemporaryFolder> {
  // Not os.tmpdir(): for root that is often private, and PostgreSQL's account could not enter it.
  const path = await mkdtemp("/tmp/sealpost-demo-");
  const remover = spawn("/bin/sh", ["-c", REMOVER, "sh", path], {
    cwd: "/",
    // In a session of its own, so that Ctrl-C in a terminal does not reach it.
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  const removed = once(remover, "exit");
  await once(remover, "spawn");
  // PostgreSQL's account has to pass through the folder; the files in it keep their own modes.
  await chmod(path, 0o711);
  return {
    path,
    remove: async () => {
      remover.stdin?.end();
      await removed;
    },
  };
}
