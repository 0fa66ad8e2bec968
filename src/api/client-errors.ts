import type { Socket } from "node:net";
import type { RenderProblem } from "./problem-responses.ts";
import { Problem } from "./problems.ts";
import type { RateLimitPolicy, RateLimits } from "./rate-limits.ts";
import { addressBucket } from "./rate-limits.ts";

/**
 * Responds to malformed HTTP and to timeouts with a problem like any other. There is no request yet, so the response
 * is written to the socket directly. The platform has neither 408 nor 431, so all of these are 400.
 */
export function createClientErrorHandler(options: {
  readonly renderProblem: RenderProblem;
  readonly rateLimits: RateLimits;
  readonly policy: RateLimitPolicy;
  readonly newRequestId: () => string;
}): (error: Error & { code?: string }, socket: Socket) => void {
  const { renderProblem, rateLimits, policy, newRequestId } = options;
  return (error, socket) => {
    if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
      return;
    }
    const requestId = newRequestId();
    const errors = [{ path: "http", message: explain(error.code) }];
    const response = renderProblem(new Problem("invalid_request", { errors }), requestId);
    const bucket = addressBucket(socket.remoteAddress ?? "unknown");
    const { headers } = rateLimits.lastKnown({ bucket, policy });
    const lines = [
      "HTTP/1.1 400 Bad Request",
      ...headerLines({ ...response.headers, ...headers, "x-request-id": requestId }),
      `content-length: ${response.body.length}`,
      "connection: close",
    ];
    socket.end(`${lines.join("\r\n")}\r\n\r\n${response.body.toString()}`);
  };
}

function headerLines(headers: Readonly<Record<string, string>>): string[] {
  return Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
}

function explain(code: string | undefined): string {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return "The headers are larger than 16 KiB.";
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return "The request did not arrive in time.";
    default:
      return "The request is not well-formed HTTP/1.1.";
  }
}
