import type { Entry } from "./explanation.ts";

/** No connection to the receiver's server; nothing was sent. */
export const CONNECT_ERRORS = {
  // Resolving the host name.
  dns_not_found: {
    outcome: "unreachable",
    concernsUrl: true,
    message: "The host name of the webhook URL does not exist in DNS.",
    remedy: "Check the URL for typos, and that the host name has an A or AAAA record.",
  },
  dns_failed: {
    outcome: "unreachable",
    message: "The name servers of the webhook URL's host returned an error.",
    remedy: "Check the domain's name servers and its DNSSEC configuration.",
  },
  dns_timeout: {
    outcome: "unreachable",
    message: "The name servers of the webhook URL's host did not respond in time.",
    remedy: "Check that the domain's name servers are up and reachable from the internet.",
  },
  target_not_public: {
    outcome: "target_refused",
    message:
      "The host name of the webhook URL resolves to an address that is not public, so nothing was sent. " +
      "Webhooks are sent to public addresses only.",
    remedy:
      "Make sure that every A and AAAA record of the name is a public address: one private address blocks them all.",
  },
  target_refused_by_proxy: {
    outcome: "target_refused",
    message:
      "Our outbound proxy does not allow connections to the host or port of the webhook URL, so nothing was sent. " +
      "Usually the host name resolves to an address that is not public.",
    remedy:
      "Make sure that every A and AAAA record of the name is a public address. If all are, contact support: " +
      "our proxy may have a rule against this host or port.",
  },

  // Connecting.
  connect_refused: {
    outcome: "unreachable",
    message: "The receiver's server refused the connection: nothing is listening on that port.",
    remedy:
      "Check that the server is running and listens on the port of the webhook URL (443 if it names none).",
  },
  connect_timeout: {
    outcome: "unreachable",
    message: "The connection to the receiver's server timed out.",
    remedy: "Check that the server is up, and that no firewall silently drops connections from the internet.",
  },
  connect_reset: {
    outcome: "unreachable",
    message:
      "The receiver's server, or a firewall in front of it, reset the connection while it was being opened.",
    remedy:
      "Check the firewall and the load balancer in front of the server; some reset connections from unknown addresses.",
  },
  connect_failed: {
    outcome: "unreachable",
    message: "We could not connect to the receiver's server.",
    remedy: "Check that the server is up and reachable from the internet on the port of the webhook URL.",
  },
  host_unreachable: {
    outcome: "unreachable",
    message: "There is no network route to the receiver's server.",
    remedy: "Check that DNS has the server's current address, and that it is reachable from the internet.",
  },
} as const satisfies Record<string, Entry>;
