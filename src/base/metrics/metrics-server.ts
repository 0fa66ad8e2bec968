import { once } from "node:events";
import { createServer, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type MetricsRegistry, TEXT_FORMAT } from "./registry.ts";

export type MetricsServerOptions = {
  readonly registry: MetricsRegistry;
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  /** Why the process is not ready, as sentences; empty: it is ready. Must not reject. */
  readonly checkReadiness: () => Promise<readonly string[]>;
};

/** Enough for monitors and probes; nobody else may exhaust the server. */
const CONNECTIONS_MAX = 50;
const REQUEST_WITHIN_MS = 5_000;

/** Serves `/metrics` and the probes on a private port. @throws the socket's error when the port cannot be had */
export async function startMetricsServer(options: MetricsServerOptions) {
  const server = createServer(
    { requestTimeout: REQUEST_WITHIN_MS, headersTimeout: REQUEST_WITHIN_MS },
    createListener(options),
  );
  server.maxConnections = CONNECTIONS_MAX;
  server.listen(options.port, options.host);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      const closed = server[Symbol.asyncDispose]();
      server.closeAllConnections();
      await closed;
    },
  };
}

function createListener({ registry, checkReadiness }: MetricsServerOptions): RequestListener {
  const pages: Readonly<Record<string, (response: ServerResponse) => Promise<void>>> = {
    "/metrics": async (response) => send(response, 200, TEXT_FORMAT, await registry.read()),
    "/healthz": async (response) => sendJson(response, 200, { status: "ok" }),
    "/readyz": async (response) => {
      const problems = await checkReadiness();
      if (problems.length === 0) sendJson(response, 200, { status: "ok" });
      else sendJson(response, 503, { status: "not_ready", hindrances: problems });
    },
  };
  return (request, response) => {
    request.resume();
    const [path = "/"] = (request.url ?? "/").split("?", 1);
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (page === undefined) return sendJson(response, 404, { status: "not_found" });
    if (request.method !== "GET" && request.method !== "HEAD") {
      response.setHeader("allow", "GET, HEAD");
      return sendJson(response, 405, { status: "method_not_allowed" });
    }
    page(response).catch(() => sendJson(response, 500, { status: "failed" }));
  };
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  send(response, status, "application/json", JSON.stringify(body));
}

/** Node omits the body of a response to HEAD by itself. */
function send(response: ServerResponse, status: number, type: string, text: string): void {
  response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text) });
  response.end(text);
}
