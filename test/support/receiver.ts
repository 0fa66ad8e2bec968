// A real HTTPS server on 127.0.0.1 as the customer's webhook receiver.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { createSecureContext, type SecureContext, type TlsOptions } from "node:tls";
import { type CertificateAuthority, type IssuedCertificate, sharedAuthority } from "./certificates.ts";
import { patience, patientSignal } from "./time-limits.ts";

/** What the receiver got; `body` has the exact bytes. */
export type ReceivedRequest = {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  rawHeaders: string[];
  body: Buffer;
  /** Milliseconds of the wall clock. */
  receivedAtMs: number;
  /** Which of the receiver's connections it came over, from 1. */
  connection: number;
  /** The name that the client asked for in TLS (SNI); false or null if none. */
  servername: string | false | null;
};

/** A response; its status defaults to 200. */
export type ScriptedAnswer = {
  status?: number;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  /** Waits before it answers. */
  delayMs?: number;
  /** Cuts the connection in place of an answer. */
  hangUp?: boolean;
};

/** Returns the response, or writes to `response` itself and returns nothing. */
export type ReceiverHandler = (
  request: ReceivedRequest,
  response: ServerResponse,
) => ScriptedAnswer | undefined | Promise<ScriptedAnswer | undefined>;

export type ReceiverOptions = {
  handler?: ReceiverHandler;
  /** Given one after the other, the last one for ever; with neither this nor a handler every answer is 200 `ok`. */
  answers?: readonly ScriptedAnswer[];
  /** Names in the certificate; default: `localhost`, any `NAME.localhost` and `NAME.many.localhost`, `127.0.0.1`. */
  names?: readonly string[];
  authority?: CertificateAuthority;
  /** In place of one that is issued for `names`. */
  certificate?: IssuedCertificate;
  tls?: TlsOptions;
  port?: number;
  /** How long the receiver keeps an idle connection; Node's own default is 5 s. */
  keepAliveTimeoutMs?: number;
  /** False keeps no record of requests: for benchmarks and floods. */
  records?: boolean;
  /** True serves without TLS. */
  plain?: boolean;
};

export type Receiver = {
  readonly port: number;
  /** The PEM that a client must trust. */
  readonly caPem: string;
  /** Every request so far, in order of arrival of its last byte. */
  readonly requests: ReceivedRequest[];
  /** Connections accepted so far. */
  readonly connectionsCount: number;
  /** Connections open now. */
  readonly openConnectionsCount: number;
  /** `https://localhost:PORT/path`, or another host of its certificate. */
  url(path?: string, host?: string): URL;
  /** Resolves with the first `count` requests once they are there; rejects after `timeoutMs` (10,000). */
  waitForRequests(count: number, timeoutMs?: number): Promise<ReceivedRequest[]>;
  /** Resolves once no connection is open. */
  waitForNoConnections(timeoutMs?: number): Promise<void>;
  /** Ends every open connection at once, and keeps listening. */
  dropConnections(): void;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

// Node's client takes no wildcard directly below a top-level label, so `NAME.localhost` gets a certificate of its
// own when it is asked for; `*.many.localhost` is for tests with thousands of names.
const NAMES = ["localhost", "*.many.localhost", "127.0.0.1"] as const;

export async function startReceiver(options: ReceiverOptions = {}): Promise<Receiver> {
  const authority = options.authority ?? (await sharedAuthority());
  const certificate = options.certificate ?? (await authority.issue({ names: options.names ?? NAMES }));
  const requests: ReceivedRequest[] = [];
  const sockets = new Map<Socket, number>();
  const changed = new EventTarget();
  const announce = () => changed.dispatchEvent(new Event("change"));
  const handler = options.handler ?? answerFrom(options.answers ?? [{}]);
  let connectionsCount = 0;

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const received: ReceivedRequest = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers: request.headers,
      rawHeaders: request.rawHeaders,
      body: Buffer.concat(chunks),
      receivedAtMs: Date.now(),
      connection: sockets.get(request.socket) ?? 0,
      servername: (request.socket as { servername?: string | false }).servername ?? null,
    };
    if (options.records !== false) {
      requests.push(received);
      announce();
    }
    const answer = await handler(received, response);
    if (answer !== undefined) await give(answer, response);
  };
  // A client that goes away in the middle is what many tests are about, and no failure of the receiver.
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    serve(request, response).catch(() => response.destroy());
  };

  const server: Server = options.plain
    ? createServer(listener)
    : createHttpsServer(
        {
          key: certificate.keyPem,
          cert: certificate.certPem,
          ...(options.names || options.certificate ? {} : { SNICallback: issueOnDemand(authority) }),
          ...options.tls,
        },
        listener,
      );
  if (options.keepAliveTimeoutMs !== undefined) server.keepAliveTimeout = options.keepAliveTimeoutMs;
  server.on(options.plain ? "connection" : "secureConnection", (socket: Socket) => {
    connectionsCount += 1;
    sockets.set(socket, connectionsCount);
    socket.on("error", () => {});
    socket.on("close", () => {
      sockets.delete(socket);
      announce();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;

  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    await closed;
  };

  return {
    port,
    caPem: authority.caPem,
    requests,
    get connectionsCount() {
      return connectionsCount;
    },
    get openConnectionsCount() {
      return sockets.size;
    },
    url: (path = "/", host = "localhost") =>
      new URL(path, `${options.plain ? "http" : "https"}://${host}:${port}`),
    waitForRequests: (count, timeoutMs = 10_000) =>
      waitUntil(
        changed,
        () => (requests.length >= count ? requests.slice(0, count) : undefined),
        timeoutMs,
        () => `${count} requests, got ${requests.length}`,
      ),
    waitForNoConnections: (timeoutMs = 10_000) =>
      waitUntil(
        changed,
        () => (sockets.size === 0 ? null : undefined),
        timeoutMs,
        () => `no connections, ${sockets.size} are open`,
      ).then(() => {}),
    dropConnections() {
      for (const socket of sockets.keys()) socket.destroy();
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

function issueOnDemand(authority: CertificateAuthority): NonNullable<TlsOptions["SNICallback"]> {
  const contexts = new Map<string, Promise<SecureContext>>();
  return (servername, callback) => {
    if (!/^[^.]+\.localhost$/.test(servername)) {
      callback(null);
      return;
    }
    let context = contexts.get(servername);
    if (context === undefined) {
      context = authority
        .issue({ names: [servername] })
        .then(({ keyPem, certPem }) => createSecureContext({ key: keyPem, cert: certPem }));
      contexts.set(servername, context);
    }
    context.then((issued) => callback(null, issued), callback);
  };
}

function answerFrom(answers: readonly ScriptedAnswer[]): ReceiverHandler {
  let given = 0;
  return () => {
    const answer = answers[Math.min(given, answers.length - 1)];
    given += 1;
    return answer ?? {};
  };
}

async function give(answer: ScriptedAnswer, response: ServerResponse): Promise<void> {
  if (answer.delayMs !== undefined) {
    await new Promise((resolve) => setTimeout(resolve, answer.delayMs));
  }
  if (answer.hangUp) {
    response.destroy();
    return;
  }
  const body = answer.body ?? "ok";
  response.writeHead(answer.status ?? 200, { "content-length": Buffer.byteLength(body), ...answer.headers });
  response.end(body);
}

function waitUntil<T>(
  changed: EventTarget,
  look: () => T | undefined,
  timeoutMs: number,
  wanted: () => string,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const finish = () => {
      signal.removeEventListener("abort", giveUp);
      changed.removeEventListener("change", check);
    };
    const check = () => {
      const found = look();
      if (found === undefined) return;
      finish();
      resolve(found);
    };
    const signal = patientSignal(timeoutMs);
    const giveUp = () => {
      finish();
      reject(new Error(`waited ${patience(timeoutMs)} ms for ${wanted()}`));
    };
    signal.addEventListener("abort", giveUp);
    changed.addEventListener("change", check);
    check();
  });
}
