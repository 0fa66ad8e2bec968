import { describe, expect, it } from "vitest";
import {
  type ConnectMeaning,
  createProxyConnector,
  meaningOf,
} from "../../../src/egress/connect/proxy-connector.ts";
import type { ConnectErrorCode } from "../../../src/egress/egress.ts";
import { startEgressProxy } from "../../support/egress-proxy.ts";
import { patience } from "../../support/time-limits.ts";
import { failureOf } from "../failure.ts";

/** What a connection ends with when the proxy means this and hangs up: in a tunnel, the TLS handshake is cut. */
const CODES: Readonly<Record<ConnectMeaning, ConnectErrorCode>> = {
  tunnel: "tls_closed",
  target_refused: "target_refused_by_proxy",
  target_unreachable: "connect_failed",
  proxy_failed: "egress_proxy_failed",
};

/** By a head without its empty line. */
async function codeAfter(head: string): Promise<ConnectErrorCode> {
  const proxy = await startEgressProxy({ answer: `${head}\r\n\r\n`, hangsUp: true });
  const proxyUrl = new URL(`http://localhost:${proxy.port}`);
  const connect = createProxyConnector({ proxyUrl, connectTimeoutMs: patience(4_000) });
  const { code } = await failureOf(
    connect({ hostname: "hooks.example.com", port: 443 }, new AbortController().signal),
  );
  await proxy.close();
  return code;
}

const every = Array.from({ length: 900 }, (_, index) => 100 + index);

describe("a proxy's answer to CONNECT", () => {
  // As the proxies send them, less fields that say nothing.
  it.each<[string, string, ConnectMeaning]>([
    ["Squid's tunnel", "HTTP/1.1 200 Connection established", "tunnel"],
    ["smokescreen's tunnel", "HTTP/1.0 200 OK", "tunnel"],
    [
      "Squid's refusal",
      "HTTP/1.1 403 Forbidden\r\nServer: squid/6.13\r\nX-Squid-Error: ERR_ACCESS_DENIED 0",
      "target_refused",
    ],
    [
      "smokescreen's refusal",
      "HTTP/1.1 407 Request rejected by proxy\r\nX-Smokescreen-Error: Egress proxying is denied to host",
      "target_refused",
    ],
    ["Envoy's refusal (RBAC)", "HTTP/1.1 403 Forbidden\r\nserver: envoy", "target_refused"],
    [
      "a name that Squid cannot resolve",
      "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_DNS_FAIL 0",
      "target_unreachable",
    ],
    [
      "a server that Squid cannot reach",
      "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_CONNECT_FAIL 111",
      "target_unreachable",
    ],
    [
      "a name that Squid before 6.3 cannot resolve",
      "HTTP/1.1 500 Internal Server Error\r\nX-Squid-Error: ERR_CANNOT_FORWARD 0",
      "target_unreachable",
    ],
    ["a name that smokescreen cannot resolve", "HTTP/1.1 502 Bad gateway", "target_unreachable"],
    ["a server that smokescreen waits for in vain", "HTTP/1.1 504 Gateway timeout", "target_unreachable"],
    ["a server that Envoy cannot reach", "HTTP/1.1 503 Service Unavailable", "target_unreachable"],
    [
      "Squid wanting credentials",
      'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="proxy"',
      "proxy_failed",
    ],
    [
      "an overloaded smokescreen",
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 36",
      "proxy_failed",
    ],
    ["smokescreen out of tunnels", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1", "proxy_failed"],
    [
      "Squid not knowing the client, by deny_info",
      "HTTP/1.1 401 Unauthorized\r\nX-Squid-Error: 401:ERR_ACCESS_DENIED 0",
      "proxy_failed",
    ],
    [
      "another error of Squid's",
      "HTTP/1.1 500 Internal Server Error\r\nX-Squid-Error: ERR_SOCKET_FAILURE 24",
      "proxy_failed",
    ],
    ["smokescreen's own error", "HTTP/1.1 500 Internal server error", "proxy_failed"],
    [
      "Envoy's circuit breaker",
      "HTTP/1.1 503 Service Unavailable\r\nx-envoy-overloaded: true",
      "proxy_failed",
    ],
    ["Envoy without a route", "HTTP/1.1 404 Not Found\r\nserver: envoy", "proxy_failed"],
  ])("is understood: %s", async (_whose, head, meaning) => {
    expect(await codeAfter(head)).toBe(CODES[meaning]);
  });

  it("is the proxy's failure wherever nothing else is known", () => {
    const meanings = every.map((status) => [status, meaningOf(status, {})] as const);
    const known = meanings.filter(([, meaning]) => meaning !== "proxy_failed");
    expect(known.filter(([, meaning]) => meaning === "tunnel").map(([status]) => status)).toEqual(
      Array.from({ length: 100 }, (_, index) => 200 + index),
    );
    expect(known.filter(([, meaning]) => meaning !== "tunnel")).toEqual([
      [403, "target_refused"],
      [407, "target_refused"],
      [502, "target_unreachable"],
      [503, "target_unreachable"],
      [504, "target_unreachable"],
    ]);
  });

  it.each(["Retry-After", "Proxy-Authenticate", "X-Envoy-Overloaded", "X-Squid-Error"])(
    "never becomes a tunnel, and loses none, by a field: %s",
    (name) => {
      const fields = { [name.toLowerCase()]: "1" };
      for (const status of every) {
        expect(meaningOf(status, fields) === "tunnel").toBe(status >= 200 && status < 300);
      }
    },
  );

  it.each<[string, string, ConnectMeaning]>([
    ["in any case", "HTTP/1.1 407 No\r\nPROXY-authenticate: Basic", "proxy_failed"],
    ["without a value", "HTTP/1.1 407 No\r\nproxy-authenticate:", "proxy_failed"],
    ["but not by its value", "HTTP/1.1 407 No\r\nx-error: proxy-authenticate: Basic", "target_refused"],
    ["but not in the reason", "HTTP/1.1 407 proxy-authenticate: Basic", "target_refused"],
    ["but not in a folded line", "HTTP/1.1 407 No\r\nx-a: b\r\n proxy-authenticate: c", "target_refused"],
  ])("is told apart by a field, %s", async (_how, head, meaning) => {
    expect(await codeAfter(head)).toBe(CODES[meaning]);
  });

  it.each([
    "",
    "SSH-2.0-OpenSSH_9.9",
    "HTTP/2 200",
    "HTTP/2.0 200 OK",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 2000 OK",
    "HTTP/1.1  200 OK",
    "http/1.1 200 OK",
    "x\r\nHTTP/1.1 200 OK",
  ])("is none unless it is HTTP/1: %j", async (head) => {
    expect(await codeAfter(head)).toBe("egress_proxy_failed");
  });
});
