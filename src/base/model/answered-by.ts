import { ANSWER_RULES, type AnswerRule } from "./answer-rules.ts";
import type { Explanation } from "./statuses.ts";

/**
 * Who may answer in place of the receiver's application, in the order in which their rules are tried: nginx's page may
 * be that of a host that runs it. `said` goes on after "NAME answered: ".
 */
const KINDS = {
  tunnel: {
    meaning: "a tunnel that is offline, or has nothing behind it",
    said: "the tunnel is not running",
    remedy:
      "Start the tunnel and the application behind it. If its address changes with every start, set the new one as " +
      "the webhook URL.",
    concernsUrl: true,
  },
  platform: {
    meaning: "a host's own page: no such application, stopped, asleep, failing",
    said: "it has no running application at this address",
    remedy:
      "Check at the host that the application is deployed and running, and that the URL is its current one.",
    concernsUrl: true,
  },
  waf: {
    meaning: "a firewall's or bot protection's block or challenge",
    said: "it blocks the request, or wants proof of a browser",
    remedy:
      "Exempt the webhook's path from its rules (bot protection, challenges, countries, rate limits); verify the " +
      "signature instead.",
  },
  login: {
    meaning: "a login in front of the receiver",
    said: "it wants somebody to sign in",
    remedy: "Exempt the webhook's path from the login; verify the signature instead.",
  },
  parked: {
    meaning: "the page of a domain that is not in use",
    said: "the domain is parked, with no application there",
    remedy: "Point the domain's DNS records at the receiver, or correct the webhook URL.",
    concernsUrl: true,
  },
  captive_portal: {
    meaning: "a network that wants its users to sign in first",
    said: "a network wants a sign-in before it lets anything through",
    remedy: "Check that the host name of the webhook URL resolves to the receiver's own public address.",
    concernsUrl: true,
  },
  proxy: {
    meaning: "the own error page of a proxy, a CDN or a web server",
    said: "this is its own page, not the application's",
    remedy: "Look for the reason in its configuration and its logs: the application did not see the request.",
  },
} as const satisfies Readonly<Record<keyof typeof ANSWER_RULES, Kind>>;

type Kind = Omit<Explanation, "message"> & {
  /** For the OpenAPI document. */
  readonly meaning: string;
  readonly said: string;
};

export type AnswererKind = keyof typeof KINDS;
export const ANSWERER_KINDS = Object.keys(KINDS) as readonly AnswererKind[];
export const meaningOfAnswerer = (kind: AnswererKind): string => KINDS[kind].meaning;

/** As the log has it. */
export type Answer = {
  readonly statusCode: number | null;
  readonly headers: Readonly<Record<string, string>> | null;
  /** The beginning of the body. */
  readonly excerpt: string | null;
};

/** `evidence` is a sentence of the rule's own words: nothing of what was answered is in it. */
export type AnsweredBy = { readonly kind: AnswererKind; readonly name: string; readonly evidence: string };

/** Who answered in place of the application. Null: the application did, or it is not plain. */
export function answeredBy(answer: Answer): AnsweredBy | null {
  const found = findRule(answer);
  return found && { kind: found.kind, name: found.rule.name, evidence: evidenceOf(found.rule, found.seen) };
}

/** What an explanation says in place of `ofStatus` where somebody else answered; else `ofStatus`. */
export function explainAnswer(answer: Answer, ofStatus: Explanation): Explanation {
  const found = findRule(answer);
  if (found === null) return ofStatus;
  const { said, remedy, concernsUrl }: Kind = KINDS[found.kind];
  const text = `${found.rule.name} answered: ${found.rule.said ?? said}`;
  // What a proxy's status says goes for its own page, too, unless it is about signatures.
  const isBeside = found.kind === "proxy" && ofStatus.concernsSecret !== true;
  if (isBeside) return { ...ofStatus, message: `${ofStatus.message} ${text}.` };
  return {
    message: `${text} (status ${answer.statusCode}).`,
    remedy,
    ...(concernsUrl === true && { concernsUrl }),
  };
}

/** The same where only that is known. */
export function explainAnswerer({ kind, name }: AnsweredBy, ofStatus: Explanation): Explanation {
  const { said, remedy }: Kind = KINDS[kind];
  if (kind === "proxy") return { ...ofStatus, message: `${ofStatus.message} ${name} answered: ${said}.` };
  return { message: `${name} answered: ${said}.`, remedy };
}

const BY_KIND: Readonly<Record<AnswererKind, readonly AnswerRule[]>> = ANSWER_RULES;
const RULES = ANSWERER_KINDS.flatMap((kind) => BY_KIND[kind].map((rule) => ({ kind, rule })));

/** The first rule that holds, and what of the answer it was held against. */
export function findRule(answer: Answer) {
  if (answer.statusCode === null) return null;
  const seen = seenOf(answer);
  const found = RULES.find(({ rule }) => holds(rule, seen));
  return found === undefined ? null : { ...found, seen };
}

type Seen = ReturnType<typeof seenOf>;

const CLOUDFLARE_CODE =
  /^error code: (\d{3,4})$|^\{"type":"https:\/\/developers\.cloudflare\.com\/[\w/-]+\/error-(\d{3,4})(?!\d)/;

function seenOf({ statusCode, headers, excerpt }: Answer) {
  const text = (excerpt ?? "").toLowerCase().replace(/\s+/g, " ").trim();
  const body = text.startsWith("{") ? text.replace(/([{,:]) (?=["\d])/g, "$1") : text;
  const isCloudflare = headers?.server?.toLowerCase() === "cloudflare";
  const [, plain, inJson] = (isCloudflare && CLOUDFLARE_CODE.exec(body)) || [];
  return {
    statusCode,
    headers,
    target: targetOf(headers?.location),
    code: Number(plain ?? inJson ?? 0),
    body,
  };
}

function targetOf(location: string | undefined) {
  const url = location === undefined ? null : URL.parse(location.toLowerCase(), "https://receiver.invalid");
  return url && { host: `.${url.hostname}`, path: url.pathname + url.search };
}

function holds({ status, header, host, path, code, begins, page }: AnswerRule, seen: Seen): boolean {
  const { headers, target, body } = seen;
  if (status !== undefined && status !== seen.statusCode) return false;
  if (header !== undefined && !headers?.[header[0]]?.toLowerCase().includes(header[1])) return false;
  if (host !== undefined && !host.some((one) => target?.host.endsWith(`.${one}`))) return false;
  if (path !== undefined && !path.every((part) => target?.path.includes(part))) return false;
  if (code !== undefined && !code.includes(seen.code)) return false;
  if (begins !== undefined && !begins.some((text) => body.startsWith(text))) return false;
  return page === undefined || (body.startsWith("<") && page.every((part) => body.includes(part)));
}

function evidenceOf({ status, header, host, path, code, begins, page }: AnswerRule, seen: Seen): string {
  const text = page?.[0] ?? begins?.find((one) => seen.body.startsWith(one));
  const shown = [
    status && `the status ${status}`,
    header && `the header ${header[1] === "" ? header[0] : `${header[0]}: ${header[1]}`}`,
    host && `a redirect to ${host.find((one) => seen.target?.host.endsWith(`.${one}`))}`,
    path && `“${path[0]}” in the Location header`,
    code && `Cloudflare's error ${seen.code}`,
    text && `“${text}” in the body`,
  ];
  return `Shown by ${shown.filter(Boolean).join(" and ")}.`;
}
