import { connect, type Socket } from "node:net";
import type { Connect, Target } from "../post/connection.ts";
import { startCutoff } from "./cutoff.ts";
import { untilEvent } from "./socket-event.ts";
import { TargetError } from "./target-error.ts";
import { createTargetSecureContext, openTls } from "./tls-connection.ts";
import { createTlsSessions, type TlsSessions } from "./tls-sessions.ts";

/** The way out failed, not the receiver: nothing was sent, and the attempt does not count. */
export class EgressProxyError extends Error {
  override readonly name = "EgressProxyError";
}

export type ProxyConnectorOptions = {
  /** `http:` or `https:`, with a user name and password where the proxy wants them. */
  readonly proxyUrl: URL;
  /** Certificates in PEM that are trusted besides the public roots, for receivers and for the proxy. */
  readonly ca?: string | undefined;
  /** Milliseconds for the proxy, its tunnel and TLS with the receiver together. */
  readonly connectTimeoutMs: number;
};

/** Of the proxy's answer to CONNECT; it has no body. */
const ANSWER_BYTES_MAX = 8_192;

/**
 * Connects to targets through an HTTP proxy that takes CONNECT. It is the proxy that resolves names, so which
 * addresses are public is its to judge; the rules for URLs and names apply all the same.
 *
 * undici's ProxyAgent was not taken: with a proxy that hangs on CONNECT it waits for ever.
 */
export function createConnectorThroughProxy(options: ProxyConnectorOptions): Connect {
  const proxy: EgressProxy = {
    url: options.proxyUrl,
    authorization: authorizationFor(options.proxyUrl),
    secureContext: createTargetSecureContext(options.ca),
    sessions: createTlsSessions(() => performance.now()),
  };

  return async (target, signal) => {
    const cutoff = startCutoff(signal, options.connectTimeoutMs);
    const cut = cutoff.signal;
    try {
      const startedAtMs = performance.now();
      const tunnel = await openTunnel(target, proxy, cut);
      const tunnelledAtMs = performance.now();
      const connectMs = tunnelledAtMs - startedAtMs;
      const socket = await openTls(tunnel, {
        host: bareHost(target.hostname),
        port: target.port,
        secureContext: proxy.secureContext,
        sessions: proxy.sessions,
        cut,
      }).catch((error: unknown) => {
        if (error instanceof TargetError) {
          error.progress = { remoteAddress: null, timings: { dnsMs: null, connectMs, tlsMs: null } };
        }
        throw error;
      });
      const tlsMs = performance.now() - tunnelledAtMs;
      return { socket, remoteAddress: null, timings: { dnsMs: null, connectMs, tlsMs } };
    } finally {
      cutoff.release();
    }
  };
}

type EgressProxy = {
  readonly url: URL;
  /** A header line, or nothing. */
  readonly authorization: string;
  readonly secureContext: ReturnType<typeof createTargetSecureContext>;
  readonly sessions: TlsSessions;
};

/** @throws EgressProxyError, or TargetError connect_failed if the proxy says that the target is out of reach */
async function openTunnel({ hostname, port }: Target, proxy: EgressProxy, cut: AbortSignal): Promise<Socket> {
  const socket = await openProxy(proxy, cut);
  const authority = `${hostname}:${port}`;
  socket.write(
    `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${proxy.authorization}Connection: keep-alive\r\n\r\n`,
    "latin1",
  );
  const status = await readStatus(socket, cut);
  if (status >= 200 && status < 300) return socket;
  socket.destroy();
  // These say of a gateway that what lies behind it failed. All else is between the proxy and us.
  if (status >= 502 && status <= 504) {
    throw new TargetError(
      "connect_failed",
      `The egress proxy could not reach ${authority}: it answered ${status}.`,
    );
  }
  throw new EgressProxyError(`The egress proxy answered ${status} to CONNECT ${authority}.`);
}

async function openProxy({ url, secureContext, sessions }: EgressProxy, cut: AbortSignal): Promise<Socket> {
  const host = bareHost(url.hostname);
  const isSecure = url.protocol === "https:";
  const port = url.port === "" ? (isSecure ? 443 : 80) : Number(url.port);
  const socket = connect({ host, port, noDelay: true });
  try {
    await untilEvent(socket, "connect", {
      cut,
      toCutError: () => new EgressProxyError(`The egress proxy ${url.host} took no connection in time.`),
      toSocketError: (cause) =>
        new EgressProxyError(`No connection to the egress proxy ${url.host}.`, { cause }),
    });
    return isSecure ? await openTls(socket, { host, port, secureContext, sessions, cut }) : socket;
  } catch (cause) {
    if (cause instanceof EgressProxyError) throw cause;
    throw new EgressProxyError(`No TLS connection to the egress proxy ${url.host}.`, { cause });
  }
}

/** The status of the proxy's answer; the socket stands right behind the answer's head. */
function readStatus(socket: Socket, cut: AbortSignal): Promise<number> {
  return new Promise((resolve, reject) => {
    let read = Buffer.alloc(0);
    function release(): void {
      socket.removeListener("data", onData).removeListener("close", onClose);
      cut.removeEventListener("abort", onCut);
    }
    function fail(message: string): void {
      release();
      socket.destroy();
      reject(new EgressProxyError(message, { cause: socket.errored }));
    }
    const onClose = () => fail("The egress proxy closed the connection without an answer to CONNECT.");
    const onCut = () => fail("The egress proxy did not answer CONNECT in time.");
    function onData(chunk: Buffer): void {
      read = Buffer.concat([read, chunk]);
      const end = read.indexOf("\r\n\r\n");
      if (end === -1) {
        if (read.length > ANSWER_BYTES_MAX) fail("The egress proxy's answer to CONNECT is too long.");
        return;
      }
      const status = /^HTTP\/1\.[01] (\d{3})(?: |\r\n)/.exec(read.toString("latin1", 0, end + 2))?.[1];
      // In TLS it is the client that speaks first, so nothing can follow the head.
      if (status === undefined || (status === "200" && read.length > end + 4)) {
        fail("The egress proxy does not answer CONNECT in HTTP/1.1.");
        return;
      }
      release();
      socket.pause();
      resolve(Number(status));
    }
    if (cut.aborted) onCut();
    else {
      socket.on("data", onData).on("close", onClose);
      cut.addEventListener("abort", onCut);
    }
  });
}

function authorizationFor({ username, password }: URL): string {
  if (username === "" && password === "") return "";
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Proxy-Authorization: Basic ${Buffer.from(credentials).toString("base64")}\r\n`;
}

function bareHost(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}
