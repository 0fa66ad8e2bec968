import type { Entry } from "./explanation.ts";

/** The server was reached, but no trusted TLS connection could be made; nothing was sent. */
export const TLS_ERRORS = {
  tls_expired: {
    outcome: "tls_failed",
    message: "The receiver's TLS certificate has expired, so nothing was sent.",
    remedy: "Renew the certificate, and check that the server has loaded the new one.",
  },
  tls_not_yet_valid: {
    outcome: "tls_failed",
    message: "The receiver's TLS certificate is not valid yet, so nothing was sent.",
    remedy: "Check the date from which the certificate is valid, or install one that is valid now.",
  },
  tls_self_signed: {
    outcome: "tls_failed",
    message: "The receiver's TLS certificate is self-signed, so nothing was sent.",
    remedy: "Install a certificate from a public certificate authority, such as Let's Encrypt.",
  },
  tls_wrong_name: {
    outcome: "tls_failed",
    concernsUrl: true,
    message: "The receiver's TLS certificate is for a different host name, so nothing was sent.",
    remedy: "Install a certificate that covers the host of the webhook URL, or correct the URL.",
  },
  tls_untrusted: {
    outcome: "tls_failed",
    message:
      "The receiver's TLS certificate does not chain to a trusted certificate authority, so nothing was sent.",
    remedy:
      "Usually the intermediate certificate is missing: make the server send the full chain. " +
      "Otherwise install a certificate from a public certificate authority.",
  },
  tls_version: {
    outcome: "tls_failed",
    message: "The receiver's server supports only outdated TLS versions, so nothing was sent.",
    remedy: "Enable TLS 1.2 or 1.3 on the server.",
  },
  tls_not_spoken: {
    outcome: "tls_failed",
    concernsUrl: true,
    message: "The server on the port of the webhook URL does not speak TLS, so nothing was sent.",
    remedy: "Use the server's HTTPS port. The usual cause is a port that speaks plain HTTP.",
  },
  tls_protocol: {
    outcome: "tls_failed",
    message: "The TLS handshake with the receiver's server failed.",
    remedy:
      "Enable TLS 1.2 or 1.3 with current cipher suites on that port, " +
      "and do not require a client certificate.",
  },
  tls_closed: {
    outcome: "tls_failed",
    message: "The receiver's server closed the connection during the TLS handshake, so nothing was sent.",
    remedy:
      "Check that the server has a certificate for the host of the webhook URL, " +
      "and that no firewall closes the connection.",
  },
  tls_timeout: {
    outcome: "tls_failed",
    message: "The receiver's server accepted the connection but did not complete the TLS handshake in time.",
    remedy: "Check that the port of the webhook URL speaks HTTPS, and that the server is not overloaded.",
  },
} as const satisfies Record<string, Entry>;
