import { ConnectError, type ConnectErrorCode } from "../egress.ts";

/** A TCP connection that failed, by the system's error code; `what` is the address and port. */
export function tcpError(error: Error, family: 4 | 6, what: string): ConnectError {
  const code = tcpErrorCode(codeOf(error), family);
  return new ConnectError(code, `The connection to ${what} failed: ${code}.`, { cause: error });
}

function tcpErrorCode(systemCode: string, family: 4 | 6): ConnectErrorCode {
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

/** A TLS handshake that failed, by the code of OpenSSL, Node or the system. */
export function tlsError(error: Error, host: string): ConnectError {
  const code = tlsErrorCode(codeOf(error));
  return new ConnectError(code, `TLS with ${host} failed: ${code}.`, { cause: error });
}

function tlsErrorCode(code: string): ConnectErrorCode {
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
