import { randomBytes } from "node:crypto";
import { readdir, rm } from "node:fs/promises";
import { createConnection, createServer, type Server } from "node:net";
import { join } from "node:path";

const OWNER_SOCKET = /^o-[0-9a-f]{8}\.sock$/;
const ANSWER_TIMEOUT_MS = 2000;

/** Another live process has this folder. */
export class FolderInUseError extends Error {
  override readonly name = "FolderInUseError";
}

/**
 * Claims a folder for as long as this process lives, so that a second start is told apart from a start after a crash.
 *
 * Each owner listens on a socket of its own name and then looks for others that answer: the kernel closes a dead
 * owner's socket, whatever killed it, and a process id that was given out again fools nobody. As everyone listens
 * before looking, of two starts at the same moment at most one wins. A lock file with a process id can be stale and
 * wrong; Node has no flock.
 *
 * @throws FolderInUseError when another live process has claimed it.
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
            "Stop that one, or choose another folder.",
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

/** What the owner says of itself; null when nobody listens there any more. */
function askOwner(path: string): Promise<string | null> {
  return new Promise((resolve) => {
    let isAlive = false;
    let answer = "";
    const socket = createConnection(path);
    // A live owner that is busy does not answer, but the kernel connects us all the same.
    socket.setTimeout(ANSWER_TIMEOUT_MS, () => socket.destroy());
    socket.on("connect", () => {
      isAlive = true;
    });
    socket.on("data", (chunk) => {
      answer += chunk.toString("utf8");
    });
    socket.on("error", () => undefined);
    socket.on("close", () => resolve(isAlive ? answer || "it does not answer" : null));
  });
}
