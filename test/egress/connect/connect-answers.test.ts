import { describe, expect, it } from "vitest";
import { createProxyConnector, refusalIn } from "../../../src/egress/connect/proxy-connector.ts";
import type { ConnectErrorCode } from "../../../src/egress/egress.ts";
import { startEgressProxy } from "../../support/egress-proxy.ts";
import { patience } from "../../support/time-limits.ts";
import { failureOf } from "../failure.ts";

/** The proxy hangs up after its answer: behind a tunnel, that cuts the TLS handshake. */
const TUNNEL = "tls_closed";

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
  it.each<[string, string, ConnectErrorCode]>([
    ["Squid's tunnel", "HTTP/1.1 200 Connection established", TUNNEL],
    ["smokescreen's tunnel", "HTTP/1.0 200 OK", TUNNEL],
    [
      "Squid's refusal",
      "HTTP/1.1 403 Forbidden\r\nServer: squid/6.13\r\nX-Squid-Error: ERR_ACCESS_DENIED 0",
      "target_refused_by_proxy",
    ],
    [
      "smokescreen's refusal",
      "HTTP/1.1 407 Request rejected by proxy\r\nX-Smokescreen-Error: Egress proxying is denied to host",
      "target_refused_by_proxy",
    ],
    ["Envoy's refusal (RBAC)", "HTTP/1.1 403 Forbidden\r\nserver: envoy", "target_refused_by_proxy"],
    [
      "a name that Squid cannot resolve",
      "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_DNS_FAIL 0",
      "connect_failed",
    ],
    [
      "a server that Squid cannot reach",
      "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_CONNECT_FAIL 111",
      "connect_failed",
    ],
    [
      "a name that Squid before 6.3 cannot resolve",
      "HTTP/1.1 500 Internal Server Error\r\nX-Squid-Error: ERR_CANNOT_FORWARD 0",
      "connect_failed",
    ],
    ["a name that smokescreen cannot resolve", "HTTP/1.1 502 Bad gateway", "connect_failed"],
    ["a server that smokescreen waits for in vain", "HTTP/1.1 504 Gateway timeout", "connect_failed"],
    ["a server that Envoy cannot reach", "HTTP/1.1 503 Service Unavailable", "connect_failed"],
    [
      "Squid wanting credentials",
      'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="proxy"',
      "egress_proxy_failed",
    ],
    [
      "an overloaded smokescreen",
      "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 36",
      "egress_proxy_failed",
    ],
    ["smokescreen out of tunnels", "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1", "egress_proxy_failed"],
    [
      "Squid not knowing the client, by deny_info",
      "HTTP/1.1 401 Unauthorized\r\nX-Squid-Error: 401:ERR_ACCESS_DENIED 0",
      "egress_proxy_failed",
    ],
    [
      "another error of Squid's",
      "HTTP/1.1 500 Internal Server Error\r\nX-Squid-Error: ERR_SOCKET_FAILURE 24",
      "egress_proxy_failed",
    ],
    ["smokescreen's own error", "HTTP/1.1 500 Internal server error", "egress_proxy_failed"],
    [
      "Envoy's circuit breaker",
      "HTTP/1.1 503 Service Unavailable\r\nx-envoy-overloaded: true",
      "egress_proxy_failed",
    ],
    ["Envoy without a route", "HTTP/1.1 404 Not Found\r\nserver: envoy", "egress_proxy_failed"],
  ])("is understood: %s", async (_whose, head, code) => {
    expect(await codeAfter(head)).toBe(code);
  });

  it("is the proxy's failure wherever nothing else is known", () => {
    const meanings = every.map((status) => [status, refusalIn(status, {})] as const);
    const known = meanings.filter(([, meaning]) => meaning !== "egress_proxy_failed");
    expect(known.filter(([, meaning]) => meaning === null).map(([status]) => status)).toEqual(
      Array.from({ length: 100 }, (_, index) => 200 + index),
    );
    expect(known.filter(([, meaning]) => meaning !== null)).toEqual([
      [403, "target_refused_by_proxy"],
      [407, "target_refused_by_proxy"],
      [502, "connect_failed"],
      [503, "connect_failed"],
      [504, "connect_failed"],
    ]);
  });

  it.each(["Retry-After", "Proxy-Authenticate", "X-Envoy-Overloaded", "X-Squid-Error"])(
    "never becomes a tunnel, and loses none, by a field: %s",
    (name) => {
      const fields = { [name.toLowerCase()]: "1" };
      for (const status of every) {
        expect(refusalIn(status, fields) === null).toBe(status >= 200 && status < 300);
      }
    },
  );

  it.each<[string, string, ConnectErrorCode]>([
    ["in any case", "HTTP/1.1 407 No\r\nPROXY-authenticate: Basic", "egress_proxy_failed"],
    ["without a value", "HTTP/1.1 407 No\r\nproxy-authenticate:", "egress_proxy_failed"],
    [
      "but not by its value",
      "HTTP/1.1 407 No\r\nx-error: proxy-authenticate: Basic",
      "target_refused_by_proxy",
    ],
    ["but not in the reason", "HTTP/1.1 407 proxy-authenticate: Basic", "target_refused_by_proxy"],
  ])("is told apart by a field, %s", async (_how, head, code) => {
    expect(await codeAfter(head)).toBe(code);
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
    // RFC 9112 has no folded lines any more, which could hide a field.
    "HTTP/1.1 407 No\r\nx-a: b\r\n proxy-authenticate: c",
  ])("is none unless it is HTTP/1: %j", async (head) => {
    expect(await codeAfter(head)).toBe("egress_proxy_failed");
  });
});
