import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from "node:http";
import type { Socket } from "node:net";
import * as limits from "./limits.ts";
import { addressBucket } from "./rate-limits.ts";

/** Whether the proxy at `address` is believed. Hop 0 is who connects to us, hop 1 whom that one names, and so on. */
export type IsTrustedProxy = (address: string, hop: number) => boolean;

export type ConnectionRefusal = "all" | "address";
export type ConnectionCut = "slow_reader" | "pipelining";

export type ConnectionObserver = {
  /** Connections open now, after one was opened or closed. */
  onConnections(open: number): void;
  /** Closed unseen: too many in all, or of this client's address. */
  onConnectionRefused(limit: ConnectionRefusal): void;
  /** Closed in the middle of its responses. */
  onConnectionCut(reason: ConnectionCut): void;
};

export type LimitedServerOptions = ConnectionObserver & {
  readonly http: ServerOptions;
  readonly isTrustedProxy: IsTrustedProxy;
  readonly connectionLimits: limits.ConnectionLimits;
};

/** How many bytes have left to the client's side: the kernel has taken them. */
export function sentBytesOf(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
}

type Connection = {
  /** Each request that is not answered yet: the first is worked on. */
  readonly requests: { readonly begin: () => void; readonly bodyBytes: number }[];
  /** What is being received, or was last, and since when, in monotonic milliseconds. */
  incoming: { readonly request: IncomingMessage; readonly sinceMs: number } | null;
  /** Since when fewer than SEND_BYTES_MIN have left, in monotonic milliseconds, and how many had left by then. */
  sinceMs: number;
  sentBytes: number;
};

const streamed = new WeakSet<IncomingMessage>();

/** The body of this request may take its time: whoever takes it sees to it that it moves. */
export function receiveByProgress(request: IncomingMessage): void {
  streamed.add(request);
}

/**
 * Node's HTTP server with limits on connections. Node itself bounds how slowly headers may arrive, but neither how
 * slowly a response is read, nor how many requests are worked on for one connection (here one at a time, once the
 * answer before has left), nor whose connections there are. Its limit on bodies is one for all, so theirs is here, too.
 */
export function createLimitedServer(options: LimitedServerOptions, handle: RequestListener): Server {
  const { connectionsMax, perAddressMax, sendWithinMs, sendCheckedEveryMs, receiveWithinMs, lingerMs } =
    options.connectionLimits;
  const connections = new Map<Socket, Connection>();
  options.onConnections(0);
  const perAddress = new Map<string, number>();

  function cut(socket: Socket, reason: ConnectionCut): void {
    if (socket.destroyed) return;
    options.onConnectionCut(reason);
    socket.destroy();
  }

  /** False for a client that has too many already. Behind a proxy the address is everybody's. */
  function admit(socket: Socket): boolean {
    const address = socket.remoteAddress;
    if (address === undefined || options.isTrustedProxy(address, 0)) return true;
    const bucket = addressBucket(address);
    const count = (perAddress.get(bucket) ?? 0) + 1;
    if (count > perAddressMax) return false;
    perAddress.set(bucket, count);
    socket.once("close", () => {
      const left = (perAddress.get(bucket) ?? 0) - 1;
      if (left > 0) perAddress.set(bucket, left);
      else perAddress.delete(bucket);
    });
    return true;
  }

  /** The rest of a body that nobody reads: a client that is still sending shall see its answer, but not for ever. */
  function discardRest(request: IncomingMessage): void {
    if (request.complete) return;
    request.resume();
    const announced = Number(request.headers["content-length"] ?? Number.NaN);
    const withinMs = announced <= limits.REFUSED_BODY_BYTES_MAX ? receiveWithinMs : lingerMs;
    // A request whose client was never told to send its body tells of no end, and its process must not wait for one.
    const lingering = setTimeout(() => request.socket.destroy(), withinMs).unref();
    request.once("close", () => {
      clearTimeout(lingering);
      // It was not idle when the server closed those that were.
      if (!server.listening) request.socket.destroySoon();
    });
  }

  const server = createServer(options.http, (request, response) => {
    const { socket } = request;
    const connection = connections.get(socket);
    // What the parser had read already still comes here.
    if (connection === undefined) return;
    const { requests } = connection;
    const begin = () => {
      // Nor is what comes after the last request of a connection answered.
      if (!socket.writable) return;
      connection.incoming = { request, sinceMs: performance.now() };
      response.once("finish", () => {
        connection.incoming = null;
        discardRest(request);
      });
      response.once("close", () => {
        requests.shift();
        requests[0]?.begin();
      });
      handle(request, response);
    };
    const { "transfer-encoding": inChunks, "content-length": length = 0 } = request.headers;
    requests.push({ begin, bodyBytes: inChunks === undefined ? Number(length) : Number.POSITIVE_INFINITY });
    const waitingBytes = requests.slice(1).reduce((sum, { bodyBytes }) => sum + bodyBytes, 0);
    const isTooMuch = waitingBytes > limits.PIPELINED_BODY_BYTES_MAX;
    if (isTooMuch || requests.length > limits.PIPELINED_REQUESTS_MAX) cut(socket, "pipelining");
    else if (requests.length === 1) begin();
  });
  server.maxConnections = connectionsMax;
  server.on("drop", () => options.onConnectionRefused("all"));
  server.on("connection", (socket: Socket) => {
    if (!admit(socket)) {
      options.onConnectionRefused("address");
      socket.destroy();
      return;
    }
    connections.set(socket, { requests: [], incoming: null, sinceMs: performance.now(), sentBytes: 0 });
    options.onConnections(connections.size);
    socket.once("close", () => {
      connections.delete(socket);
      options.onConnections(connections.size);
    });
  });

  function isLate({ incoming }: Connection, nowMs: number): boolean {
    if (incoming === null || incoming.request.complete || streamed.has(incoming.request)) return false;
    return nowMs - incoming.sinceMs >= receiveWithinMs;
  }

  const checking = setInterval(() => {
    const nowMs = performance.now();
    for (const [socket, connection] of connections) {
      const sentBytes = sentBytesOf(socket);
      const isMoving =
        socket.writableLength === 0 || sentBytes - connection.sentBytes >= limits.SEND_BYTES_MIN;
      if (isMoving) Object.assign(connection, { sinceMs: nowMs, sentBytes });
      else if (nowMs - connection.sinceMs >= sendWithinMs) cut(socket, "slow_reader");
      if (isLate(connection, nowMs)) server.emit("clientError", lateBody(), socket);
    }
  }, sendCheckedEveryMs);
  checking.unref();
  server.once("close", () => clearInterval(checking));
  return server;
}

/** As Node's own, of a request that is late. */
function lateBody(): Error {
  return Object.assign(new Error("a request's body did not arrive in time"), {
    code: "ERR_HTTP_REQUEST_TIMEOUT",
  });
}

/** Requests whose client sends the body only when it is told to go on. */
const waiting = new WeakMap<IncomingMessage, ServerResponse>();

/**
 * `Expect: 100-continue` is answered when the body is wanted, so that a request that is refused before never sends it.
 * Node closes a connection whose client was not told to go on. Any other expectation is ignored, not answered with a
 * bare 417.
 */
export function answerExpectations(server: Server): void {
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    waiting.set(request, response);
    server.emit("request", request, response);
  });
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
}

/** The body is wanted now. */
export function sendContinue(request: IncomingMessage): void {
  waiting.get(request)?.writeContinue();
  waiting.delete(request);
}
