import type { URL_REFUSALS } from "../../base/model/url-refusals.ts";
import { judgeAddress } from "./address.ts";
import {
  allowsUnsafely,
  bareHost,
  findFormFault,
  findNameFault,
  isPortAllowed,
  NO_UNSAFE_ALLOWED_TARGETS,
  portOf,
  type UnsafeAllowedTargets,
} from "./host.ts";

/** Characters, of the text as given and of the normal form that is stored and requested. */
export const TARGET_URL_LENGTH_MAX = 2_048;

export type TargetRefusalCode = keyof typeof URL_REFUSALS;

export type TargetUrlRefusal = { verdict: "refuse"; code: TargetRefusalCode; message: string };

/** `href` is the form to store, show and request; `url` is the same, parsed, and belongs to the caller. */
export type TargetUrlVerdict = { verdict: "allow"; url: URL; href: string } | TargetUrlRefusal;

export type TargetUrlOptions = { readonly unsafeAllowedTargets?: UnsafeAllowedTargets | undefined };

/**
 * Says whether a text is the URL of a public HTTPS endpoint, as far as that is known without DNS. The addresses of an
 * allowed name are judged at every connection (SSRF, DNS rebinding). A refusal's message says what is wrong and what to
 * do.
 */
export function judgeTargetUrl(text: string, options: TargetUrlOptions = {}): TargetUrlVerdict {
  if (text.length > TARGET_URL_LENGTH_MAX) return refuseLength(text.length);
  const fault = findTextFault(text);
  if (fault !== null) return refuse(fault, FORM_FAULTS[fault]);

  // Not URL.parse, which Node 20 did not have at first: pipelines on it run this, too.
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || url.protocol !== "https:") return refuse("url_malformed", FORM_FAULTS.url_malformed);

  const refusedTarget = refuseTarget(url, options.unsafeAllowedTargets ?? NO_UNSAFE_ALLOWED_TARGETS);
  if (refusedTarget !== null) return refusedTarget;

  // Percent-encoding makes a text with letters outside ASCII up to twelve times as long.
  if (url.href.length > TARGET_URL_LENGTH_MAX) return refuseLength(url.href.length);
  return { verdict: "allow", url, href: url.href };
}

const FORM_FAULTS = {
  url_has_control_characters:
    "The URL contains whitespace or control characters. Remove them, or write them percent-encoded.",
  url_has_backslash: "The URL contains a backslash, which clients read differently. Use / or %5C.",
  url_not_https: "The URL does not begin with https://. Only HTTPS endpoints are called.",
  url_has_credentials:
    "The URL contains a user name or password before its host. Remove it; deliveries are signed instead.",
  url_has_fragment: "The URL contains a #, and what follows it is never sent. Remove that part.",
  url_malformed: "The text is not a valid URL. Write it in full, like https://hooks.example.com/analyses.",
} as const;

/** What only the raw text shows: the parser drops tabs, repairs slashes and splits off credentials and fragment. */
function findTextFault(text: string): keyof typeof FORM_FAULTS | null {
  if (/[\s\p{Cc}]/u.test(text)) return "url_has_control_characters";
  if (!text.isWellFormed()) return "url_malformed";
  if (text.includes("\\")) return "url_has_backslash";
  if (!/^https:/i.test(text)) return "url_not_https";
  if (!/^https:\/\/[^/]/i.test(text)) return "url_malformed";
  const [authority] = text.slice("https://".length).split(/[/?#]/);
  if (authority!.includes("@")) return "url_has_credentials";
  return text.includes("#") ? "url_has_fragment" : null;
}

/** What the parsed URL leads to. A name must be well formed even where everything else is lifted. */
function refuseTarget(url: URL, unsafeAllowedTargets: UnsafeAllowedTargets): TargetUrlRefusal | null {
  const { hostname } = url;
  const port = portOf(url);
  const isLifted = allowsUnsafely(unsafeAllowedTargets, hostname, port);
  const address = addressIn(hostname);
  if (address !== null) {
    const judged = isLifted ? null : judgeAddress(address);
    if (judged?.verdict === "refuse") {
      return refuse(
        "address_not_public",
        `The address ${address} is not public (${judged.reason}). Use an endpoint that the internet can reach.`,
      );
    }
  } else {
    const fault = isLifted ? findFormFault(hostname) : findNameFault(hostname);
    if (fault?.kind === "malformed") {
      return refuse("name_malformed", `The host name ${fault.what}. Check how it is written.`);
    }
    if (fault?.kind === "not_public") {
      return refuse(
        "name_not_public",
        `The host name "${hostname}" ${fault.what}. Use an endpoint that the internet can reach.`,
      );
    }
  }
  if (!isLifted && !isPortAllowed(port)) {
    return refuse(
      "port_not_allowed",
      `Port ${port} is not allowed. Use 443, or one from 1024 up that no other well-known service uses.`,
    );
  }
  return null;
}

/** The IP address that a parsed URL names in place of a host name, or null. */
function addressIn(hostname: string): string | null {
  if (hostname.startsWith("[")) return bareHost(hostname);
  // The parser writes every IPv4 address, however disguised, as four decimals, and no name looks like that.
  return /^\d+\.\d+\.\d+\.\d+$/.test(hostname) ? hostname : null;
}

function refuseLength(length: number): TargetUrlRefusal {
  return refuse(
    "url_too_long",
    `The URL takes ${length} characters, non-ASCII ones encoded. Shorten it to ${TARGET_URL_LENGTH_MAX}.`,
  );
}

function refuse(code: TargetRefusalCode, message: string): TargetUrlRefusal {
  return { verdict: "refuse", code, message };
}
