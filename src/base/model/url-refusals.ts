import type { Explanation } from "./statuses.ts";

/** The webhook URL is refused by its text alone; nothing was sent, and a retry would not help. */
export const URL_REFUSALS = {
  url_too_long: {
    message: "The webhook URL is too long.",
    remedy: "Use a URL of at most 2,048 characters.",
  },
  url_has_control_characters: {
    message: "The webhook URL contains whitespace or control characters.",
    remedy: "Remove or percent-encode them.",
  },
  url_has_backslash: {
    message: "The webhook URL contains a backslash, which URL parsers read differently.",
    remedy: "Use a slash, or encode the backslash as %5C.",
  },
  url_not_https: {
    message: "The webhook URL does not start with https://.",
    remedy: "Use an https:// URL.",
  },
  url_malformed: {
    message: "The webhook URL is not a valid URL.",
    remedy: "Write it in full, for example https://hooks.example.com/analyses.",
  },
  url_has_credentials: {
    message: "The webhook URL contains a user name or password.",
    remedy: "Remove them, and verify the signature instead.",
  },
  url_has_fragment: {
    message: "The webhook URL contains a fragment (#…), which is never sent.",
    remedy: "Remove the fragment.",
  },
  name_malformed: {
    message: "The host name of the webhook URL is not valid.",
    remedy: "Check its spelling.",
  },
  name_not_public: {
    message: "The host name of the webhook URL belongs to a private network.",
    remedy: "Use a host name that exists in public DNS.",
  },
  address_not_public: {
    message: "The address in the webhook URL is not public.",
    remedy: "Use a host that is reachable from the internet.",
  },
  port_not_allowed: {
    message: "The port of the webhook URL is not allowed.",
    remedy: "Use port 443, or one above 1023 that no well-known service uses.",
  },
} as const satisfies Record<string, Explanation>;
