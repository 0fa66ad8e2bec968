// Ports that a test knows before somebody listens there, or needs again after somebody has stopped listening; other
// addresses for what listens; and whether the machine has IPv6.

import { randomInt } from "node:crypto";
import { once } from "node:events";
import { connect, createServer, type Server } from "node:net";
import { networkInterfaces } from "node:os";
import { pipeline } from "node:stream";

/** Below Linux's and macOS's ephemeral ports (from 32768 and 49152), which the suite's other sockets get. */
const FROM = 20_000;
const TO = 32_768;
const TRIES = 10;

/** Containers often have none, not even on loopback. */
export const HAS_IPV6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === "::1"),
);

/** A port on which nobody listens at 127.0.0.1, and which is not ephemeral: only who names it gets it. */
export async function freePort(): Promise<number> {
  for (let tries = TRIES; ; tries -= 1) {
    const port = randomInt(FROM, TO);
    const server = createServer().listen(port, "127.0.0.1");
    try {
      await once(server, "listening");
    } catch (error) {
      if (tries === 0 || (error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      continue;
    }
    server.close();
    await once(server, "close");
    return port;
  }
}

/** Serves at another loopback address what listens at this port of 127.0.0.1. */
export async function forwardFrom(address: string, port: number): Promise<Server> {
  const server = createServer((from) => pipeline(from, connect(port, "127.0.0.1"), from, () => undefined));
  await once(server.listen(port, address), "listening");
  return server;
}
