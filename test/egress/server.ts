// Servers on loopback for what a connector can meet, with what reached them.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";

export type Listening = { host?: string; port?: number };

export type TestServer = {
  readonly port: number;
  /** Every connection accepted, for TLS servers the plain socket underneath. */
  readonly sockets: readonly Socket[];
  /** Resolves with the next connection. */
  nextConnection(): Promise<Socket>;
  close(): Promise<void>;
};

/** Does what it is told with each connection; by default it reads, and stays silent. */
export function startTcpServer(
  options: Listening & { onConnection?: (socket: Socket) => void } = {},
): Promise<TestServer> {
  const { onConnection = (socket) => socket.resume() } = options;
  return listen(createServer(onConnection), options);
}

export function startTlsServer(options: Listening & TlsOptions): Promise<TestServer> {
  const server = createTlsServer(options, (socket) => {
    socket.on("error", () => {});
    socket.resume();
  });
  server.on("tlsClientError", () => {});
  return listen(server, options);
}

async function listen(server: Server, { host = "127.0.0.1", port = 0 }: Listening): Promise<TestServer> {
  const sockets: Socket[] = [];
  server.on("connection", (socket: Socket) => {
    socket.on("error", () => {});
    sockets.push(socket);
  });
  server.listen(port, host);
  await once(server, "listening");
  return {
    port: portOf(server),
    sockets,
    async nextConnection() {
      const [socket] = await once(server, "connection");
      return socket;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

export type BlackHole = { readonly port: number; close(): Promise<void> };

/**
 * A port that takes no connection and refuses none: its process is stopped and its queue of two is full, so that
 * the kernel drops every further SYN.
 */
export async function startBlackHole(host = "127.0.0.1", port = 0): Promise<BlackHole> {
  const program = `
    const where = { host: ${JSON.stringify(host)}, port: ${port}, backlog: 1 };
    const say = (what) => require("node:fs").writeSync(1, what + "\\n");
    const server = require("node:net").createServer().listen(where, () => {
      say(server.address().port);
      process.kill(process.pid, "SIGSTOP");
    });
    server.on("error", ({ message }) => say(message));`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  const [said] = await once(child.stdout, "data");
  const bound = Number(said);
  if (Number.isNaN(bound)) throw new Error(`There is no black hole: ${said}`);
  const fillers = [1, 2].map(() => connect(bound, host).on("error", () => {}));
  await Promise.all(fillers.map((filler) => once(filler, "connect")));
  return {
    port: bound,
    async close() {
      for (const filler of fillers) filler.destroy();
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

function portOf(server: Server): number {
  const bound = server.address();
  if (bound === null || typeof bound === "string") throw new Error("The server has no port.");
  return bound.port;
}
