import { connect, type Socket } from "node:net";
import type { Connect, Target } from "../egress.ts";
import { bareHost } from "../rules/host-name.ts";
import { startDeadline, untilEvent } from "./deadline.ts";
import { TargetError } from "./target-error.ts";
import { createTargetSecureContext, createTlsSessions, openTls, type TlsSessions } from "./tls.ts";

/** The head of a proxy's response to CONNECT, as far as its meaning depends on it. */
export type ConnectAnswer = {
  readonly status: number;
  /** By name in lower case; of repeated fields, the last. */
  readonly fields: ReadonlyMap<string, string>;
};

/**
 * - `tunnel`: the proxy is connected to the target
 * - `target_refused`: the proxy's rules forbid the target
 * - `target_unreachable`: the proxy could not resolve the target's name or connect to it
 * - `proxy_failed`: the proxy does not serve us now, whatever the target
 */
export type ConnectMeaning = "tunnel" | "target_refused" | "target_unreachable" | "proxy_failed";

type Row = {
  readonly status: number;
  /** The row is for answers with this field only. */
  readonly field?: { readonly name: string; readonly value?: RegExp };
  readonly meaning: ConnectMeaning;
};

/**
 * What Squid, smokescreen and Envoy answer; docs/operating.md has the same by proxy. The first row that fits counts.
 * Of the fields, only those that a specification or the proxy's own documentation defines, and one that tells a bug of
 * versions that no longer change.
 */
const ROWS: readonly Row[] = [
  { status: 403, meaning: "target_refused" },
  // RFC 9110 requires this field of a proxy that wants credentials. smokescreen refuses targets without it.
  { status: 407, field: { name: "proxy-authenticate" }, meaning: "proxy_failed" },
  { status: 407, meaning: "target_refused" },
  // Squid's bug 5294: before 6.3, that is how it reports a name that cannot be resolved.
  {
    status: 500,
    field: { name: "x-squid-error", value: /^ERR_CANNOT_FORWARD\b/ },
    meaning: "target_unreachable",
  },
  { status: 502, meaning: "target_unreachable" },
  // By RFC 9110, when the proxy itself will be available again.
  { status: 503, field: { name: "retry-after" }, meaning: "proxy_failed" },
  // Envoy's circuit breaker for all targets together.
  { status: 503, field: { name: "x-envoy-overloaded" }, meaning: "proxy_failed" },
  { status: 503, meaning: "target_unreachable" },
  { status: 504, meaning: "target_unreachable" },
];

/** What no row fits is the proxy's failure: it costs the receiver no attempt, and somebody is told. */
export function meaningOf(answer: ConnectAnswer): ConnectMeaning {
  if (answer.status >= 200 && answer.status < 300) return "tunnel";
  return ROWS.find((row) => fits(row, answer))?.meaning ?? "proxy_failed";
}

function fits({ status, field }: Row, answer: ConnectAnswer): boolean {
  if (status !== answer.status) return false;
  if (field === undefined) return true;
  const value = answer.fields.get(field.name);
  return value !== undefined && (field.value?.test(value) ?? true);
}

/** The answer in `head`, which ends before the empty line; null if it is not HTTP/1. */
export function parseConnectAnswer(head: string): ConnectAnswer | null {
  const [statusLine = "", ...fieldLines] = head.split("\r\n");
  const status = /^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1];
  if (status === undefined) return null;
  const fields = new Map<string, string>();
  for (const line of fieldLines) {
    const [, name, value] = /^([^\s:]+):(.*)$/.exec(line) ?? [];
    if (name !== undefined && value !== undefined) fields.set(name.toLowerCase(), value.trim());
  }
  return { status: Number(status), fields };
}

/** The egress proxy failed, not the receiver: nothing was sent, and the attempt does not count. */
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

/** Size of the proxy's response to CONNECT, which has no body. */
const RESPONSE_BYTES_MAX = 8_192;

/**
 * Connects to targets through an HTTP proxy that supports CONNECT. The proxy resolves the names, so it is up to the
 * proxy to refuse private addresses; the rules for URLs and names still apply.
 *
 * Not undici's ProxyAgent: it waits for ever for a proxy that hangs on CONNECT.
 */
export function createProxyConnector(options: ProxyConnectorOptions): Connect {
  const proxy: EgressProxy = {
    url: options.proxyUrl,
    authorization: authorizationFor(options.proxyUrl),
    secureContext: createTargetSecureContext(options.ca),
    sessions: createTlsSessions(() => performance.now()),
    answeredAtMs: Number.NEGATIVE_INFINITY,
  };

  return async (target, parent) => {
    const deadline = startDeadline(parent, options.connectTimeoutMs);
    const { signal } = deadline;
    try {
      const startedAtMs = performance.now();
      const tunnel = await openTunnel(target, proxy, signal);
      const tunnelledAtMs = performance.now();
      const connectMs = tunnelledAtMs - startedAtMs;
      const socket = await openTls(tunnel, {
        host: bareHost(target.hostname),
        port: target.port,
        secureContext: proxy.secureContext,
        sessions: proxy.sessions,
        signal,
      }).catch((error: unknown) => {
        if (error instanceof TargetError) {
          error.progress = { remoteAddress: null, timings: { dnsMs: null, connectMs, tlsMs: null } };
        }
        throw error;
      });
      const tlsMs = performance.now() - tunnelledAtMs;
      return { socket, transport: tunnel, remoteAddress: null, timings: { dnsMs: null, connectMs, tlsMs } };
    } finally {
      deadline.release();
    }
  };
}

type EgressProxy = {
  readonly url: URL;
  /** The Proxy-Authorization line, or an empty text. */
  readonly authorization: string;
  readonly secureContext: ReturnType<typeof createTargetSecureContext>;
  readonly sessions: TlsSessions;
  /** When it last answered any CONNECT; monotonic milliseconds. */
  answeredAtMs: number;
};

/** @throws EgressProxyError, or TargetError target_refused_by_proxy, connect_failed or connect_timeout */
async function openTunnel(
  { hostname, port }: Target,
  proxy: EgressProxy,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = await openProxy(proxy, signal);
  const authority = `${hostname}:${port}`;
  socket.write(
    `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${proxy.authorization}Connection: keep-alive\r\n\r\n`,
    "latin1",
  );
  const askedAtMs = performance.now();
  const answer = await readAnswer(socket, signal).catch((error: unknown) => {
    // A proxy that answers others meanwhile is not down: it waits for this target, longer than we do.
    const isTargetSlow = signal.aborted && proxy.answeredAtMs > askedAtMs;
    if (!isTargetSlow) throw error;
    throw new TargetError("connect_timeout", `The egress proxy could not reach ${authority} in time.`);
  });
  proxy.answeredAtMs = performance.now();
  const meaning = meaningOf(answer);
  if (meaning === "tunnel") return socket;
  socket.destroy();
  switch (meaning) {
    case "target_refused":
      throw new TargetError(
        "target_refused_by_proxy",
        `The egress proxy refuses ${authority}: it answered ${answer.status}.`,
      );
    case "target_unreachable":
      throw new TargetError(
        "connect_failed",
        `The egress proxy could not reach ${authority}: it answered ${answer.status}.`,
      );
    case "proxy_failed":
      throw new EgressProxyError(`The egress proxy answered ${answer.status} to CONNECT ${authority}.`);
    default:
      throw new Error(`Unknown meaning ${meaning satisfies never}`);
  }
}

async function openProxy(
  { url, secureContext, sessions }: EgressProxy,
  signal: AbortSignal,
): Promise<Socket> {
  const host = bareHost(url.hostname);
  const isSecure = url.protocol === "https:";
  const port = url.port === "" ? (isSecure ? 443 : 80) : Number(url.port);
  const socket = connect({ host, port, noDelay: true });
  try {
    await untilEvent(socket, "connect", {
      signal,
      toAbortError: () =>
        new EgressProxyError(`The egress proxy ${url.host} accepted no connection in time.`),
      toSocketError: (cause) =>
        new EgressProxyError(`No connection to the egress proxy ${url.host}.`, { cause }),
    });
    return isSecure ? await openTls(socket, { host, port, secureContext, sessions, signal }) : socket;
  } catch (cause) {
    if (cause instanceof EgressProxyError) throw cause;
    throw new EgressProxyError(`No TLS connection to the egress proxy ${url.host}.`, { cause });
  }
}

/** The proxy's response. The socket is left paused just behind its head. */
function readAnswer(socket: Socket, signal: AbortSignal): Promise<ConnectAnswer> {
  return new Promise((resolve, reject) => {
    let read = Buffer.alloc(0);
    function release(): void {
      socket.removeListener("data", onData).removeListener("close", onClose);
      signal.removeEventListener("abort", onAbort);
    }
    function fail(message: string): void {
      release();
      socket.destroy();
      reject(new EgressProxyError(message, { cause: socket.errored }));
    }
    const onClose = () => fail("The egress proxy closed the connection without an answer to CONNECT.");
    const onAbort = () => fail("The egress proxy did not answer CONNECT in time.");
    function onData(chunk: Buffer): void {
      read = Buffer.concat([read, chunk]);
      const end = read.indexOf("\r\n\r\n");
      if (end === -1) {
        if (read.length > RESPONSE_BYTES_MAX) fail("The egress proxy's answer to CONNECT is too long.");
        return;
      }
      const answer = parseConnectAnswer(read.toString("latin1", 0, end));
      // In TLS the client speaks first, so nothing can follow the head of a tunnel.
      if (answer === null || (meaningOf(answer) === "tunnel" && read.length > end + 4)) {
        fail("The egress proxy does not answer CONNECT in HTTP/1.1.");
        return;
      }
      release();
      socket.pause();
      resolve(answer);
    }
    if (signal.aborted) onAbort();
    else {
      socket.on("data", onData).on("close", onClose);
      signal.addEventListener("abort", onAbort);
    }
  });
}

function authorizationFor({ username, password }: URL): string {
  if (username === "" && password === "") return "";
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return `Proxy-Authorization: Basic ${Buffer.from(credentials).toString("base64")}\r\n`;
}
