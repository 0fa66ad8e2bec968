import { once } from "node:events";
import { type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { connect, type Socket } from "node:net";
import { type Connect, ConnectError, type ConnectErrorCode } from "../egress.ts";
import { bareHost } from "../rules/host.ts";
import { type ConnectorOptions, createConnector, openTls, type TlsOptions, untilEvent } from "./connector.ts";

/**
 * Why a proxy that answers CONNECT so has not connected to the target; null: it has. What Squid, smokescreen and Envoy
 * answer; docs/operating.md has the same by proxy. Of the fields, only those that a specification or the proxy's own
 * documentation defines, and one that tells a bug of versions that no longer change. What is not known is the proxy's
 * failure: it costs the receiver no attempt, and somebody is told.
 */
export function refusalIn(status: number, headers: IncomingHttpHeaders): ConnectErrorCode | null {
  if (status >= 200 && status < 300) return null;
  switch (status) {
    case 403:
      return "target_refused_by_proxy";
    case 407:
      // RFC 9110 requires this field of a proxy that wants credentials. smokescreen refuses targets without it.
      return "proxy-authenticate" in headers ? "egress_proxy_failed" : "target_refused_by_proxy";
    case 500:
      // Squid's bug 5294: before 6.3, that is how it reports a name that cannot be resolved.
      return /^ERR_CANNOT_FORWARD\b/.test(String(headers["x-squid-error"]))
        ? "connect_failed"
        : "egress_proxy_failed";
    case 502:
    case 504:
      return "connect_failed";
    case 503:
      // By RFC 9110, when the proxy itself will be available again; Envoy's circuit breaker for all targets together.
      return "retry-after" in headers || "x-envoy-overloaded" in headers
        ? "egress_proxy_failed"
        : "connect_failed";
    default:
      return "egress_proxy_failed";
  }
}

export type ProxyConnectorOptions = ConnectorOptions & {
  /** `http:` or `https:`, with a user name and password where the proxy wants them. */
  readonly proxyUrl: URL;
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
  const { proxyUrl } = options;
  const authorization = authorizationFor(proxyUrl);
  /** When it last answered any CONNECT; monotonic milliseconds. */
  let answeredAtMs = Number.NEGATIVE_INFINITY;

  return createConnector(options, async ({ hostname, port, admit }, { signal }, _progress, tls) => {
    await admit?.(bareHost(hostname));
    const socket = await openProxy(proxyUrl, { ...tls, signal });
    const authority = `${hostname}:${port}`;
    const askedAtMs = performance.now();
    const asking = askForTunnel(socket, authority, authorization, signal);
    const { statusCode = 0, headers } = await asking.catch((cause: unknown) => {
      socket.destroy();
      // A proxy that answers others meanwhile is not down: it waits for this target, longer than we do.
      if (signal.aborted && answeredAtMs > askedAtMs)
        throw new ConnectError("connect_timeout", `The egress proxy could not reach ${authority} in time.`);
      throw proxyError(`The egress proxy did not answer CONNECT ${authority}.`, cause);
    });
    answeredAtMs = performance.now();
    const refusal = refusalIn(statusCode, headers);
    if (refusal === null) return socket;
    socket.destroy();
    throw new ConnectError(refusal, `The egress proxy answered ${statusCode} to CONNECT ${authority}.`);
  });
}

async function openProxy(url: URL, tls: Omit<TlsOptions, "host" | "port">): Promise<Socket> {
  const host = bareHost(url.hostname);
  const isSecure = url.protocol === "https:";
  const port = url.port === "" ? (isSecure ? 443 : 80) : Number(url.port);
  const socket = connect({ host, port, noDelay: true });
  const toError = (cause?: unknown) => proxyError(`No connection to the egress proxy ${url.host}.`, cause);
  await untilEvent(socket, "connect", tls.signal, toError, toError);
  if (!isSecure) return socket;
  return await openTls(socket, { host, port, ...tls }).catch((cause: unknown) => {
    throw proxyError(`No TLS connection to the egress proxy ${url.host}.`, cause);
  });
}

/** Leaves the socket just behind the head of the proxy's response. Rejects unless that is HTTP/1 and came in time. */
async function askForTunnel(
  socket: Socket,
  authority: string,
  authorization: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const asking = request({
    method: "CONNECT",
    path: authority,
    headers: { Host: authority, ...authorization, Connection: "keep-alive" },
    maxHeaderSize: RESPONSE_HEAD_BYTES_MAX,
    createConnection: () => socket,
    signal,
  }).end();
  // For good: an error behind the first one would otherwise end the process.
  asking.on("error", () => {});
  const [answer, , rest] = (await once(asking, "connect")) as [IncomingMessage, Socket, Buffer];
  // In TLS the client speaks first, so nothing can follow the head of a tunnel.
  const isTunnel = refusalIn(answer.statusCode ?? 0, answer.headers) === null;
  if (answer.httpVersionMajor !== 1 || (isTunnel && rest.length > 0)) throw new Error("not HTTP/1");
  return answer;
}

/** The egress proxy failed, not the receiver: the attempt does not count. */
function proxyError(message: string, cause?: unknown): ConnectError {
  return new ConnectError("egress_proxy_failed", message, { cause });
}

/** The Proxy-Authorization header, where there is one. */
function authorizationFor({ username, password }: URL): Readonly<Record<string, string>> {
  if (username === "" && password === "") return {};
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { "Proxy-Authorization": `Basic ${Buffer.from(credentials).toString("base64")}` };
}
