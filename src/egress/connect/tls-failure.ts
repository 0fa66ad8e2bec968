import { TargetError, type TargetErrorCode } from "./target-error.ts";

type TlsFailureCode = Exclude<Extract<TargetErrorCode, `tls_${string}`>, "tls_timeout">;

/** The error of a handshake that failed, by its cause. */
export function tlsError(error: Error, host: string): TargetError {
  const code = tlsFailureCode("code" in error ? String(error.code) : "");
  return new TargetError(code, `TLS with ${host} failed: ${MESSAGES[code]}.`, { cause: error });
}

const MESSAGES: Record<TlsFailureCode, string> = {
  tls_expired: "its certificate has expired",
  tls_not_yet_valid: "its certificate is not valid yet",
  tls_self_signed: "its certificate is self-signed",
  tls_wrong_name: "its certificate is for another name",
  tls_untrusted: "its certificate does not lead to a trusted authority",
  tls_version: "it speaks no TLS version from 1.2 up",
  tls_not_spoken: "what answers there does not speak TLS",
  tls_protocol: "no common ground was found",
  tls_closed: "it closed the connection during the handshake",
};

/** From OpenSSL's names for a certificate's faults and for protocol errors, and from system errors. */
function tlsFailureCode(code: string): TlsFailureCode {
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
      // ECONNRESET, EPIPE and their kin; or an end without an error.
      if (/^(E[A-Z]+)?$/.test(code)) return "tls_closed";
      // OpenSSL's other faults of a certificate: unknown root, missing intermediate, revoked, weak, misused.
      return "tls_untrusted";
  }
}
