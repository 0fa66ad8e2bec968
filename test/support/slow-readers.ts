// Clients that ask for much and read next to nothing of it, against a real `serve`.
import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { expect } from "vitest";
import { createTestDatabase } from "./database.ts";
import { startProcess } from "./sealpost-process.ts";

/** Where the system tells a process's memory. */
export const canWatchMemory = existsSync("/proc/self/status");

const SCRIPT = "/reference/js/scalar.js";
/** From so many addresses of this machine, so that no one address has too many connections. */
const ADDRESSES = 4;
/** The memory is looked at for this long after the last reader has begun. */
const WATCHED_MS = 3_000;

export type SlowReaderMemory = { readonly idleBytes: number; readonly peakBytes: number };

/** What `serve` takes more while `readers` slow readers, half of whom decompress, hold the largest page it has. */
export async function memoryUnderSlowReaders(readers: number): Promise<SlowReaderMemory> {
  const database = await createTestDatabase();
  const serve = await startProcess("serve", { DATABASE_URL: database.url, RATE_LIMIT_REQUESTS: "1000000" });
  const sockets: Socket[] = [];
  try {
    await warmUp(serve.url);
    const idleBytes = await serve.rssBytes();
    const peakBytes = await serve.peakRssBytes(async () => {
      for (let n = 0; n < readers; n += 1) sockets.push(await openSlowReader(serve.url, n));
      await new Promise((resolve) => setTimeout(resolve, WATCHED_MS));
    });
    expect((await fetch(`${serve.url}/healthz`)).status).toBe(200);
    return { idleBytes, peakBytes };
  } finally {
    for (const socket of sockets) socket.destroy();
    await serve.stop();
    await database.drop();
  }
}

/** Both forms of the page once, and some small requests: what V8 takes for these it would take for any client. */
async function warmUp(url: string): Promise<void> {
  for (const encoding of ["identity", "gzip"]) {
    await (await fetch(url + SCRIPT, { headers: { "accept-encoding": encoding } })).arrayBuffer();
  }
  for (let n = 0; n < 200; n += 1) await (await fetch(`${url}/errors`)).arrayBuffer();
}

/** Resolves when its first byte has come, and takes one more with every look. */
async function openSlowReader(url: string, n: number): Promise<Socket> {
  const { hostname: host, port } = new URL(url);
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const socket = connect({
    host,
    port: Number(port),
    localAddress: `127.0.0.${2 + (n % ADDRESSES)}`,
    onread: {
      buffer: Buffer.alloc(1),
      // No more is read until it is resumed.
      callback: () => {
        begin();
        return false;
      },
    },
  });
  socket.on("error", () => undefined);
  await once(socket, "connect");
  const encoding = n % 2 === 0 ? "identity" : "gzip";
  socket.write(`GET ${SCRIPT} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: ${encoding}\r\n\r\n`);
  await begun;
  const reading = setInterval(() => socket.resume(), 1_000);
  socket.once("close", () => clearInterval(reading));
  return socket;
}
