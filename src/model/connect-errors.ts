import type { Entry } from "./explanation.ts";

/** No connection to the receiver's server; nothing was sent. */
export const CONNECT_ERRORS = {
  // Finding the receiver's address.
  dns_not_found: {
    outcome: "unreachable",
    concernsUrl: true,
    message: "The host name of the webhook URL does not exist in DNS.",
    remedy: "Check the URL for a typing error, and check that the name has an A or AAAA record.",
  },
  dns_failed: {
    outcome: "unreachable",
    message: "The name servers of the webhook URL's host answered with an error.",
    remedy: "Check the domain's name servers and its DNSSEC settings.",
  },
  dns_timeout: {
    outcome: "unreachable",
    message: "The name servers of the webhook URL's host did not answer in time.",
    remedy: "Check that the domain's name servers are up and reachable from the internet.",
  },
  target_not_public: {
    outcome: "target_refused",
    message:
      "The host name of the webhook URL leads to an address that is not public, so nothing was sent. " +
      "Webhooks go to public addresses only.",
    remedy:
      "Let every A and AAAA record of the name point to a public address: " +
      "one private address among them is enough to refuse it.",
  },

  // Connecting.
  connect_refused: {
    outcome: "unreachable",
    message: "The receiver's server refused the connection: nothing listens on that port.",
    remedy:
      "Check that the server is running and listens on the port of the webhook URL (443 if it names none).",
  },
  connect_timeout: {
    outcome: "unreachable",
    message: "No connection to the receiver's server came about in time.",
    remedy: "Check that the server is up, and that no firewall silently drops connections from the internet.",
  },
  connect_reset: {
    outcome: "unreachable",
    message: "The receiver's server, or a firewall before it, cut the connection while it was being made.",
    remedy:
      "Check the firewall and the load balancer in front of the server; some cut off addresses they do not know.",
  },
  connect_failed: {
    outcome: "unreachable",
    message: "No connection to the receiver's server could be made.",
    remedy:
      "Check that the server is up and can be reached from the internet on the port of the webhook URL.",
  },
  host_unreachable: {
    outcome: "unreachable",
    message: "There is no network route to the receiver's server.",
    remedy: "Check that the address in DNS is the server's present one and can be reached from the internet.",
  },
} as const satisfies Record<string, Entry>;
