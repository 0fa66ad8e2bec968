import { ConnectError, type ConnectErrorCode } from "../egress.ts";

/** A TCP connection that failed, by the system's error code; `what` is the address and port. */
export function tcpError(error: Error, family: 4 | 6, what: string): ConnectError {
  const code = tcpErrorCode(codeOf(error), family);
  const messages: Record<typeof code, string> = {
    connect_refused: `${what} refused the connection.`,
    connect_timeout: `${what} did not accept the connection in time.`,
    connect_reset: `${what} reset the connection.`,
    host_unreachable: `No route leads to ${what}.`,
    local_resources_exhausted: `This machine has no descriptor, port or memory left to connect to ${what}.`,
    connect_failed: `The connection to ${what} failed.`,
  };
  return new ConnectError(code, messages[code], { cause: error });
}

function tcpErrorCode(systemCode: string, family: 4 | 6) {
  switch (systemCode) {
    case "ECONNREFUSED":
      return "connect_refused";
    case "ETIMEDOUT":
      return "connect_timeout";
    case "ECONNRESET":
    case "ECONNABORTED":
    case "EPIPE":
      return "connect_reset";
    case "EHOSTUNREACH":
    case "EHOSTDOWN":
    case "ENETUNREACH":
    case "ENETDOWN":
    case "EAFNOSUPPORT":
      return "host_unreachable";
    case "EADDRNOTAVAIL":
      // Over IPv6: this machine has none. Over IPv4: its ports are exhausted.
      return family === 6 ? "host_unreachable" : "local_resources_exhausted";
    case "EMFILE":
    case "ENFILE":
    case "ENOBUFS":
    case "ENOMEM":
      return "local_resources_exhausted";
    default:
      return "connect_failed";
  }
}

type TlsErrorCode = Exclude<Extract<ConnectErrorCode, `tls_${string}`>, "tls_timeout">;

/** A TLS handshake that failed, by the code of OpenSSL, Node or the system. */
export function tlsError(error: Error, host: string): ConnectError {
  const code = tlsErrorCode(codeOf(error));
  return new ConnectError(code, `TLS with ${host} failed: ${TLS_MESSAGES[code]}.`, { cause: error });
}

const TLS_MESSAGES: Record<TlsErrorCode, string> = {
  tls_expired: "its certificate has expired",
  tls_not_yet_valid: "its certificate is not valid yet",
  tls_self_signed: "its certificate is self-signed",
  tls_wrong_name: "its certificate is for another name",
  tls_untrusted: "its certificate does not lead to a trusted authority",
  tls_version: "it supports neither TLS 1.2 nor 1.3",
  tls_not_spoken: "what answers there does not speak TLS",
  tls_protocol: "the handshake ended in a protocol error",
  tls_closed: "it closed the connection during the handshake",
};

function tlsErrorCode(code: string): TlsErrorCode {
  switch (code) {
    case "CERT_HAS_EXPIRED":
      return "tls_expired";
    case "CERT_NOT_YET_VALID":
      return "tls_not_yet_valid";
    case "DEPTH_ZERO_SELF_SIGNED_CERT":
      return "tls_self_signed";
    case "ERR_TLS_CERT_ALTNAME_INVALID":
    case "HOSTNAME_MISMATCH":
      return "tls_wrong_name";
    case "ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION":
    case "ERR_SSL_UNSUPPORTED_PROTOCOL":
      return "tls_version";
    case "ERR_SSL_WRONG_VERSION_NUMBER":
    case "ERR_SSL_HTTP_REQUEST":
    case "ERR_SSL_PACKET_LENGTH_TOO_LONG":
    case "ERR_SSL_BAD_RECORD_TYPE":
    case "ERR_SSL_RECORD_LAYER_FAILURE":
      return "tls_not_spoken";
    default:
      if (code.startsWith("ERR_") || code === "EPROTO") return "tls_protocol";
      // ECONNRESET, EPIPE and the like, or a close without an error.
      if (/^(E[A-Z]+)?$/.test(code)) return "tls_closed";
      // OpenSSL's other certificate errors: unknown root, missing intermediate, revoked, weak, wrong purpose.
      return "tls_untrusted";
  }
}

function codeOf(error: Error): string {
  return "code" in error ? String(error.code) : "";
}
