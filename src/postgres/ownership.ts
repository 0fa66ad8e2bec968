import { randomBytes } from "node:crypto";
import { readdir, rm } from "node:fs/promises";
import { createConnection, createServer, type Server } from "node:net";
import { join } from "node:path";

const OWNER_SOCKET = /^o-[0-9a-f]{8}\.sock$/;
const ANSWER_TIMEOUT_MS = 2000;

/** Another live process owns this folder. */
export class FolderInUseError extends Error {
  override readonly name = "FolderInUseError";
}

/**
 * Claims a folder for the lifetime of this process, to tell a second start from a restart after a crash.
 *
 * Each owner listens on a socket of its own and then looks for others that answer: the kernel closes a dead owner's
 * socket, however it died, and reused pids do not matter. Everyone listens before looking, so of two simultaneous
 * starts at most one wins. A pid file can be stale, and Node has no flock.
 *
 * @throws FolderInUseError if another live process has claimed it.
 */
export async function claimFolder(folder: string, dataDir: string): Promise<{ release(): Promise<void> }> {
  const name = `o-${randomBytes(4).toString("hex")}.sock`;
  const server = await listen(join(folder, name));
  const release = () => new Promise<void>((done) => server.close(() => done()));
  try {
    for (const other of await readdir(folder)) {
      if (other === name || !OWNER_SOCKET.test(other)) continue;
      const owner = await askOwner(join(folder, other));
      if (owner !== null) {
        throw new FolderInUseError(
          `The database in ${dataDir} is in use by another running process (${owner}). ` +
            "Stop it, or choose another folder.",
        );
      }
      await rm(join(folder, other), { force: true });
    }
  } catch (error) {
    await release();
    throw error;
  }
  return { release };
}

function listen(path: string): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.end(`process ${process.pid}`);
    });
    server.unref();
    server.once("error", reject);
    server.listen(path, () => resolve(server));
  });
}

/** The owner's description of itself; null if nobody listens there any more. */
function askOwner(path: string): Promise<string | null> {
  return new Promise((resolve) => {
    let isAlive = false;
    let answer = "";
    const socket = createConnection(path);
    // A busy owner does not answer, but the kernel accepts the connection.
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
    socket.on("connect", () => {
      isAlive = true;
    });
    socket.on("data", (chunk) => {
      answer += chunk.toString("utf8");
    });
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(isAlive ? answer || "it does not respond" : null));
  });
}
