import { errors } from "undici";
import type { ErrorCode } from "../../base/model/error-codes.ts";
import { EgressProxyError } from "../connect/proxy-connector.ts";
import { TargetError } from "../connect/target-error.ts";
import { TransportFloodedError } from "./connection.ts";
import type { PostTimings } from "./result.ts";

/** Why no connection was made. Unknown errors are reported as such, never blamed on the receiver. */
export function classifyConnectError(error: unknown): ErrorCode {
  if (error instanceof EgressProxyError) return "egress_proxy_failed";
  if (!(error instanceof TargetError)) return "unexpected_failure";
  // Whoever aborts knows why, and does not ask here.
  return error.code === "aborted" ? "unexpected_failure" : error.code;
}

/** The step that the attempt's deadline cut short. Behind a proxy there is no DNS step. */
export function classifySlowConnect(timings: Pick<PostTimings, "dnsMs" | "connectMs">): ErrorCode {
  if (timings.connectMs !== null) return "tls_timeout";
  return timings.dnsMs === null ? "dns_timeout" : "connect_timeout";
}

/** Why a request that was sent got no answer, by the errors of undici, its HTTP parser, OpenSSL and the system. */
export function classifyAnswerError(error: Error): ErrorCode {
  // The parser's errors do not always have a code.
  if (error instanceof errors.HTTPParserError) return "bad_response";
  if (error instanceof TransportFloodedError) return "response_head_too_large";
  const code = String((error as { code?: unknown }).code);
  switch (code) {
    case "UND_ERR_HEADERS_OVERFLOW":
      return "response_head_too_large";
    case "UND_ERR_RES_CONTENT_LENGTH_MISMATCH":
      return "bad_response";
    case "UND_ERR_SOCKET":
      // undici has one code for both; "bad response" and "bad upgrade" are its messages for unexpected HTTP.
      return error.message.startsWith("bad ") ? "bad_response" : "connection_closed";
    case "ECONNRESET":
    case "ECONNABORTED":
    case "EPIPE":
    case "ETIMEDOUT":
    case "EHOSTUNREACH":
    case "ENETUNREACH":
    case "ENETDOWN":
      return "connection_reset";
    default:
      // Alerts after the handshake: with TLS 1.3 a server that wants a client certificate says so only then.
      if (code.startsWith("ERR_SSL_") || code === "EPROTO") return "tls_protocol";
      return "unexpected_failure";
  }
}
