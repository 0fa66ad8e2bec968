import { ConnectError, type ConnectErrorCode } from "../egress.ts";

const TCP_ERRORS: Readonly<Record<string, ConnectErrorCode>> = {
  ECONNREFUSED: "connect_refused",
  ETIMEDOUT: "connect_timeout",
  ECONNRESET: "connect_reset",
  ECONNABORTED: "connect_reset",
  EPIPE: "connect_reset",
  EHOSTUNREACH: "host_unreachable",
  EHOSTDOWN: "host_unreachable",
  ENETUNREACH: "host_unreachable",
  ENETDOWN: "host_unreachable",
  EAFNOSUPPORT: "host_unreachable",
  EADDRNOTAVAIL: "local_resources_exhausted",
  EMFILE: "local_resources_exhausted",
  ENFILE: "local_resources_exhausted",
  ENOBUFS: "local_resources_exhausted",
  ENOMEM: "local_resources_exhausted",
};

/** A TCP connection that failed, by the system's error code; `what` is the address and port. */
export function tcpError(error: Error, family: 4 | 6, what: string): ConnectError {
  const systemCode = codeOf(error);
  // Over IPv6: this machine has none. Over IPv4: its ports are exhausted.
  const isWithoutIpv6 = systemCode === "EADDRNOTAVAIL" && family === 6;
  const code = isWithoutIpv6 ? "host_unreachable" : (TCP_ERRORS[systemCode] ?? "connect_failed");
  return new ConnectError(code, `The connection to ${what} failed: ${code}.`, { cause: error });
}

const TLS_ERRORS: Readonly<Record<string, ConnectErrorCode>> = {
  CERT_HAS_EXPIRED: "tls_expired",
  CERT_NOT_YET_VALID: "tls_not_yet_valid",
  DEPTH_ZERO_SELF_SIGNED_CERT: "tls_self_signed",
  ERR_TLS_CERT_ALTNAME_INVALID: "tls_wrong_name",
  HOSTNAME_MISMATCH: "tls_wrong_name",
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: "tls_version",
  ERR_SSL_UNSUPPORTED_PROTOCOL: "tls_version",
  ERR_SSL_WRONG_VERSION_NUMBER: "tls_not_spoken",
  ERR_SSL_HTTP_REQUEST: "tls_not_spoken",
  ERR_SSL_PACKET_LENGTH_TOO_LONG: "tls_not_spoken",
  ERR_SSL_BAD_RECORD_TYPE: "tls_not_spoken",
  ERR_SSL_RECORD_LAYER_FAILURE: "tls_not_spoken",
};

/** A TLS handshake that failed, by the code of OpenSSL, Node or the system. */
export function tlsError(error: Error, host: string): ConnectError {
  const systemCode = codeOf(error);
  const code = TLS_ERRORS[systemCode] ?? otherTlsError(systemCode);
  return new ConnectError(code, `TLS with ${host} failed: ${code}.`, { cause: error });
}

function otherTlsError(code: string): ConnectErrorCode {
  if (code.startsWith("ERR_") || code === "EPROTO") return "tls_protocol";
  // ECONNRESET, EPIPE and the like, or a close without an error.
  if (/^(E[A-Z]+)?$/.test(code)) return "tls_closed";
  // OpenSSL's other certificate errors: unknown root, missing intermediate, revoked, weak, wrong purpose.
  return "tls_untrusted";
}

function codeOf(error: Error): string {
  return "code" in error ? String(error.code) : "";
}
