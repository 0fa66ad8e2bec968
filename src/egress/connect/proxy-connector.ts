import { once } from "node:events";
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { connect, type Socket } from "node:net";
import { type Connect, ConnectError, type Target } from "../egress.ts";
import { bareHost } from "../rules/host.ts";
import { startDeadline, untilEvent } from "./deadline.ts";
import { createTargetSecureContext, createTlsSessions, openTls, type TlsSessions } from "./tls.ts";

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
export function meaningOf(status: number, headers: IncomingHttpHeaders): ConnectMeaning {
  if (status >= 200 && status < 300) return "tunnel";
  const fits = ({ status: wanted, field }: Row) => {
    if (wanted !== status || field === undefined) return wanted === status;
    const found = headers[field.name];
    return found !== undefined && (field.value?.test(String(found)) ?? true);
  };
  return ROWS.find(fits)?.meaning ?? "proxy_failed";
}

export type ProxyConnectorOptions = {
  /** `http:` or `https:`, with a user name and password where the proxy wants them. */
  readonly proxyUrl: URL;
  /** Certificates in PEM that are trusted besides the public roots, for receivers and for the proxy. */
  readonly ca?: string | undefined;
  /** Milliseconds for the proxy, its tunnel and TLS with the receiver together. */
  readonly connectTimeoutMs: number;
};

/** Of the proxy's response to CONNECT. */
const RESPONSE_HEAD_BYTES_MAX = 8_192;

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
        if (error instanceof ConnectError) {
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
  /** The Proxy-Authorization header, where there is one. */
  readonly authorization: Readonly<Record<string, string>>;
  readonly secureContext: ReturnType<typeof createTargetSecureContext>;
  readonly sessions: TlsSessions;
  /** When it last answered any CONNECT; monotonic milliseconds. */
  answeredAtMs: number;
};

/** @throws ConnectError target_refused_by_proxy, connect_failed, connect_timeout or egress_proxy_failed */
async function openTunnel(
  { hostname, port }: Target,
  proxy: EgressProxy,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = await openProxy(proxy, signal);
  const authority = `${hostname}:${port}`;
  const askedAtMs = performance.now();
  const { meaning, found } = await askForTunnel(socket, authority, proxy, signal).catch((cause: unknown) => {
    socket.destroy();
    // A proxy that answers others meanwhile is not down: it waits for this target, longer than we do.
    if (signal.aborted && proxy.answeredAtMs > askedAtMs)
      throw new ConnectError("connect_timeout", `The egress proxy could not reach ${authority} in time.`);
    throw proxyError(`The egress proxy did not answer CONNECT ${authority}.`, cause);
  });
  proxy.answeredAtMs = performance.now();
  if (meaning === "tunnel") return socket;
  socket.destroy();
  switch (meaning) {
    case "target_refused":
      throw new ConnectError("target_refused_by_proxy", `The egress proxy refuses ${authority}: ${found}.`);
    case "target_unreachable":
      throw new ConnectError("connect_failed", `The egress proxy could not reach ${authority}: ${found}.`);
    case "proxy_failed":
      throw proxyError(`The egress proxy did not connect to ${authority}: ${found}.`);
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
  const toError = (cause?: unknown) => proxyError(`No connection to the egress proxy ${url.host}.`, cause);
  await untilEvent(socket, "connect", signal, toError, toError);
  if (!isSecure) return socket;
  return await openTls(socket, { host, port, secureContext, sessions, signal }).catch((cause: unknown) => {
    throw proxyError(`No TLS connection to the egress proxy ${url.host}.`, cause);
  });
}

/** Leaves the socket just behind the head of the proxy's response. Rejects unless that is HTTP/1 and came in time. */
async function askForTunnel(
  socket: Socket,
  authority: string,
  { authorization }: EgressProxy,
  signal: AbortSignal,
): Promise<{ readonly meaning: ConnectMeaning; readonly found: string }> {
  const asking = request({
    method: "CONNECT",
    path: authority,
    headers: { Host: authority, ...authorization, Connection: "keep-alive" },
    maxHeaderSize: RESPONSE_HEAD_BYTES_MAX,
    createConnection: () => socket,
    signal,
  }).end();
  const answered = (await once(asking, "connect")) as [IncomingMessage, Socket, Buffer];
  const [{ statusCode = 0, headers, httpVersionMajor }, , rest] = answered;
  const meaning = meaningOf(statusCode, headers);
  // In TLS the client speaks first, so nothing can follow the head of a tunnel.
  if (httpVersionMajor !== 1 || (meaning === "tunnel" && rest.length > 0)) throw new Error("not HTTP/1");
  return { meaning, found: `it answered ${statusCode}` };
}

/** The egress proxy failed, not the receiver: the attempt does not count. */
function proxyError(message: string, cause?: unknown): ConnectError {
  return new ConnectError("egress_proxy_failed", message, { cause });
}

function authorizationFor({ username, password }: URL): Readonly<Record<string, string>> {
  if (username === "" && password === "") return {};
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { "Proxy-Authorization": `Basic ${Buffer.from(credentials).toString("base64")}` };
}
