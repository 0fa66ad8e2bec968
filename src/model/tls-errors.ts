import type { Entry } from "./explanation.ts";

/** The server was reached, but no trustworthy TLS connection came about; nothing was sent. */
export const TLS_ERRORS = {
  tls_expired: {
    outcome: "tls_failed",
    message: "The receiver's TLS certificate has expired, so nothing was sent.",
    remedy: "Renew the certificate, and check that the server has loaded the new one.",
  },
  tls_not_yet_valid: {
    outcome: "tls_failed",
    message: "The receiver's TLS certificate is not valid yet, so nothing was sent.",
    remedy: "Check the certificate's first day of validity; install one that is valid now.",
  },
  tls_self_signed: {
    outcome: "tls_failed",
    message: "The receiver's TLS certificate is self-signed, so nobody vouches for it and nothing was sent.",
    remedy: "Install a certificate of a public certificate authority, for example one of Let's Encrypt.",
  },
  tls_wrong_name: {
    outcome: "tls_failed",
    concernsUrl: true,
    message: "The receiver's TLS certificate is for another host name, so nothing was sent.",
    remedy: "Install a certificate that lists the host of the webhook URL, or correct the URL.",
  },
  tls_untrusted: {
    outcome: "tls_failed",
    message:
      "The receiver's TLS certificate does not lead to a certificate authority that we trust, so nothing was sent.",
    remedy:
      "Most often the intermediate certificate is missing: let the server send the full chain. " +
      "Else install a certificate of a public certificate authority.",
  },
  tls_version: {
    outcome: "tls_failed",
    message: "The receiver's server offers only TLS versions that are too old, so nothing was sent.",
    remedy: "Let the server speak TLS 1.2 or 1.3.",
  },
  tls_not_spoken: {
    outcome: "tls_failed",
    concernsUrl: true,
    message: "What listens on the port of the webhook URL does not speak TLS, so nothing was sent.",
    remedy: "Use the port on which the server speaks HTTPS; plain HTTP is most often the cause.",
  },
  tls_protocol: {
    outcome: "tls_failed",
    message: "The receiver's server and we could not agree on a TLS connection.",
    remedy:
      "Let the server speak TLS 1.2 or 1.3 with current cipher suites on that port, " +
      "and let it not ask for a client certificate.",
  },
  tls_closed: {
    outcome: "tls_failed",
    message: "The receiver's server cut the connection during the TLS handshake, so nothing was sent.",
    remedy:
      "Check that the server has a certificate for the host of the webhook URL, " +
      "and that no firewall cuts the connection.",
  },
  tls_timeout: {
    outcome: "tls_failed",
    message: "The receiver's server took the connection but did not finish the TLS handshake in time.",
    remedy: "Check that the port of the webhook URL speaks HTTPS, and that the server is not overloaded.",
  },
} as const satisfies Record<string, Entry>;
