import type { Entry } from "./explanation.ts";

const REFUSED = { outcome: "target_refused", concernsUrl: true } as const;

/** The webhook URL is refused by its text alone; nothing was sent, and trying again would change nothing. */
export const URL_REFUSALS = {
  url_too_long: {
    ...REFUSED,
    message: "The webhook URL is too long.",
    remedy: "Use a URL of at most 2,048 characters.",
  },
  url_has_control_characters: {
    ...REFUSED,
    message: "The webhook URL contains white space or control characters.",
    remedy: "Remove them, or write them percent-encoded.",
  },
  url_has_backslash: {
    ...REFUSED,
    message: "The webhook URL contains a backslash, which not everybody reads the same way.",
    remedy: "Use a slash, or write the backslash as %5C.",
  },
  url_not_https: {
    ...REFUSED,
    message: "The webhook URL does not begin with https://.",
    remedy: "Use an https:// URL.",
  },
  url_malformed: {
    ...REFUSED,
    message: "The webhook URL is not a valid URL.",
    remedy: "Write it in full, such as https://hooks.example.com/analyses.",
  },
  url_has_credentials: {
    ...REFUSED,
    message: "The webhook URL contains a user name or a password.",
    remedy: "Remove them. Verify the signature of a delivery instead.",
  },
  url_has_fragment: {
    ...REFUSED,
    message: "The webhook URL contains a fragment (# and what follows), which is never sent.",
    remedy: "Remove the fragment.",
  },
  name_malformed: {
    ...REFUSED,
    message: "The host name of the webhook URL is not a valid one.",
    remedy: "Check its spelling.",
  },
  name_not_public: {
    ...REFUSED,
    message: "The host name of the webhook URL is one of private networks.",
    remedy: "Use a host name that exists in the public DNS.",
  },
  address_not_public: {
    ...REFUSED,
    message: "The address in the webhook URL is not a public one.",
    remedy: "Use a host that the internet can reach.",
  },
  port_not_allowed: {
    ...REFUSED,
    message: "The port of the webhook URL is not one that we deliver to.",
    remedy: "Use port 443, or one above 1023 that is not known as another service's.",
  },
} as const satisfies Record<string, Entry>;
