import { z } from "zod";
import { seal, unseal } from "../base/database/sealing.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { HIDDEN, webhookHeaders } from "./webhook.ts";

const HEADERS_MAX = 10;
const NAME_CHARS_MAX = 100;
const VALUE_CHARS_MAX = 2_048;
const SECRET_CHARS_MIN = 8;
/** Servers take 8 KB of all headers, some 16. */
const CHARS_MAX = 6_000;

/** What HTTP and the connection say, and what every webhook has. */
const RESERVED = new Set([
  ...["host", "connection", "keep-alive", "upgrade", "te", "trailer", "transfer-encoding", "expect"],
  ...["http2-settings", "accept-encoding", "date", "via", "tracestate"],
  ...Object.keys(webhookHeaders({ signature: "", traceparent: "" })),
]);
const RESERVED_BEGINNINGS = ["content-", "proxy-", "webhook-", "sealpost-", "sec-"];

/** A header that webhooks to the endpoint have beside the service's own: for a gateway that asks for one. */
export type EndpointHeader = { readonly name: string; readonly value: string; readonly secret: boolean };

/** Why a header of this name cannot be sent; null: it can. */
function nameFault(name: string): string | null {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name))
    return "Must be a header's name: letters, digits and hyphens, without spaces or colons.";
  if (name.length > NAME_CHARS_MAX) return `Must have at most ${NAME_CHARS_MAX} characters.`;
  // Some servers make one name of both.
  const lower = name.toLowerCase().replaceAll("_", "-");
  const isReserved =
    RESERVED.has(lower) || RESERVED_BEGINNINGS.some((beginning) => lower.startsWith(beginning));
  return isReserved ? `${lower} is set by HTTP or by the service itself.` : null;
}

function valueFault(value: string): string | null {
  if (value === "") return "Must not be empty.";
  if (value.length > VALUE_CHARS_MAX) return `Must have at most ${VALUE_CHARS_MAX} characters.`;
  if (!/^[ -~]*$/.test(value))
    return "Must be ASCII without control characters (no line breaks, tabs, umlauts).";
  return value === value.trim() ? null : "Must have no spaces around it.";
}

/** Tells of a fault as the field's. */
const judged = (fault: (text: string) => string | null) =>
  z.string().superRefine((text, context) => {
    const message = fault(text);
    if (message !== null) context.addIssue({ code: "custom", message });
  });

const NewEndpointHeader = z
  .strictObject({
    name: judged(nameFault).meta({ maxLength: NAME_CHARS_MAX, example: "CF-Access-Client-Secret" }),
    value: judged(valueFault)
      .meta({ maxLength: VALUE_CHARS_MAX })
      .optional()
      .describe("Absent: as it is, where the endpoint has a header of this name."),
    secret: z
      .boolean()
      .describe(
        "Whether its value is never shown again, and is gone once the endpoint is at another origin.",
      ),
  })
  .superRefine(({ value, secret }, context) => {
    if (!secret || value === undefined || value.length >= SECRET_CHARS_MIN) return;
    const message = `Must have at least ${SECRET_CHARS_MIN} characters if it is secret: shorter ones cannot be hidden.`;
    context.addIssue({ code: "custom", path: ["value"], message });
  })
  .meta({
    id: "NewEndpointHeader",
    description: "A header that is sent along with every webhook to the endpoint.",
  });

export const NewEndpointHeaders = z
  .array(NewEndpointHeader)
  .max(HEADERS_MAX)
  .superRefine((headers, context) => {
    const names = headers.map(({ name }) => name.toLowerCase());
    for (const [at, name] of names.entries())
      if (names.indexOf(name) !== at)
        context.addIssue({ code: "custom", path: [at, "name"], message: "This header is there already." });
    const chars = headers.reduce((sum, { name, value = "" }) => sum + name.length + value.length, 0);
    if (chars > CHARS_MAX)
      context.addIssue({ code: "custom", message: `Must have at most ${CHARS_MAX} characters together.` });
  })
  .describe(
    "Headers of your own, up to 10, for a gateway in front of your receiver. Not sent to a `webhook_url`. All of " +
      "them, each time: one that is left out is removed. Absent: as they are.",
  );

export type GivenHeaders = z.output<typeof NewEndpointHeaders>;

/** Where one of those given leaves its value out and there is none to be kept. */
export class HeaderValueMissing extends Error {
  override readonly name = "HeaderValueMissing";
  readonly at: number;

  constructor(at: number) {
    super("There is no value to be kept: send one.");
    this.at = at;
  }
}

/**
 * The headers that an endpoint has from now on. Secret ones stay secret.
 * @param kept of those it has, the ones that go to its new URL
 * @throws HeaderValueMissing
 */
export function headersAfter(
  kept: readonly EndpointHeader[],
  given: GivenHeaders | undefined,
): readonly EndpointHeader[] {
  if (given === undefined) return kept;
  return given.map(({ name, value, secret }, at) => {
    if (value !== undefined) return { name, value, secret };
    const old = kept.find((one) => one.name.toLowerCase() === name.toLowerCase());
    if (old === undefined || (old.secret && !secret)) throw new HeaderValueMissing(at);
    return { name, value: old.value, secret };
  });
}

const ownerOf = (accountId: string) => ({ accountId, id: accountId });
const originOf = (url: string) => URL.parse(url)?.origin ?? null;

/** For an endpoint at this URL. Null: there are none. */
export function sealHeaders(
  headers: readonly EndpointHeader[],
  url: string,
  accountId: string,
  secretsKey: SecretsKey,
): Buffer | null {
  if (headers.length === 0) return null;
  return seal(JSON.stringify({ origin: originOf(url), headers }), secretsKey, ownerOf(accountId));
}

/**
 * Those that go to this URL, the secret ones only at the origin that they were given for: whoever may change the URL
 * could have them sent to another receiver. Throws as `unseal`.
 */
export function unsealHeaders(
  sealed: Uint8Array | null,
  url: string,
  accountId: string,
  secretsKey: SecretsKey,
): readonly EndpointHeader[] {
  if (sealed === null) return [];
  const kept: { readonly origin: string; readonly headers: readonly EndpointHeader[] } = JSON.parse(
    unseal(sealed, secretsKey, ownerOf(accountId)),
  );
  return kept.origin === originOf(url) ? kept.headers : kept.headers.filter(({ secret }) => !secret);
}

/** As the API shows them. */
export function shownHeaders(headers: readonly EndpointHeader[]) {
  return headers.map(({ name, value, secret }) => ({ name, value: secret ? null : value, secret }));
}

/** As a POST has them. */
export function sentHeaders(headers: readonly EndpointHeader[]): Readonly<Record<string, string>> {
  return Object.fromEntries(headers.map(({ name, value }) => [name.toLowerCase(), value]));
}

/** As much of a value's beginning, where what was answered was cut, says something of it. */
const TOLD_CHARS_MIN = 4;
/** A piece of a value that is as long is hidden wherever it is. Of shorter ones, many are words that anybody uses. */
const PIECE_CHARS = 12;

/** What hides secret values in an answer, which a receiver may send back and the log would show. Undefined: nothing. */
export function hidingSecrets(headers: readonly EndpointHeader[]): ((text: string) => string) | undefined {
  const secrets = headers.filter(({ secret }) => secret);
  if (secrets.length === 0) return undefined;
  let prepared: Hidden | undefined;
  return (text) => {
    // Most answers have no text, so nothing is prepared for them.
    if (text.length < TOLD_CHARS_MIN) return text;
    prepared ??= prepareHidden(secrets);
    const hidden = prepared;
    const plain = text.replace(BASE64, (encoded) => (isToldIn(encoded, hidden) ? HIDDEN : encoded));
    return withoutHidden(plain, hidden);
  };
}

type Hidden = { readonly parts: readonly string[]; readonly pieces: ReadonlySet<number> };

function prepareHidden(secrets: readonly EndpointHeader[]): Hidden {
  const parts = secrets.flatMap(({ value }) => partsOf(value)).map((part) => readingOf(part).read);
  const pieces = new Set<number>();
  for (const part of new Set(parts)) {
    if (parts.some((other) => other !== part && other.includes(part))) continue;
    eachPiece(part, (piece, at) => part[at] !== " " && pieces.add(piece));
  }
  return { parts, pieces };
}

const FACTOR = 0x1000193;
const FACTOR_OF_FIRST = Array.from({ length: PIECE_CHARS - 1 }).reduce<number>(
  (all) => Math.imul(all, FACTOR),
  1,
);

/**
 * Tells a number for each piece of a text, which equal ones share. Now and then another one has it, too, and is hidden
 * for nothing: the pieces themselves, of which headers may have 20,000, took some 6 ms of an attempt.
 */
function eachPiece(text: string, tell: (piece: number, at: number) => void): void {
  let piece = 0;
  for (let end = 1; end <= text.length; end++) {
    piece = (Math.imul(piece, FACTOR) + text.charCodeAt(end - 1)) | 0;
    const at = end - PIECE_CHARS;
    if (at < 0) continue;
    tell(piece, at);
    piece -= Math.imul(text.charCodeAt(at), FACTOR_OF_FIRST);
  }
}

/** What may be base64 of a text with a value in it. */
const BASE64 = /[\w+/-]{16,}/g;

function isToldIn(encoded: string, hidden: Hidden): boolean {
  // What it was cut from may have begun at any place of a group of four.
  return [0, 1, 2, 3].some((skipped) => {
    const text = Buffer.from(encoded.slice(skipped), "base64").toString("latin1");
    return withoutHidden(text, hidden) !== text;
  });
}

function withoutHidden(text: string, { parts, pieces }: Hidden): string {
  const { read, starts } = readingOf(text);
  const isHidden = new Uint8Array(read.length);
  eachPiece(read, (piece, at) => pieces.has(piece) && isHidden.fill(1, at, at + PIECE_CHARS));
  const uncut = read.replace(CUT_SPELLING, "");
  for (const part of parts) {
    if (part.length < PIECE_CHARS)
      for (let at = read.indexOf(part); at !== -1; at = read.indexOf(part, at + 1))
        isHidden.fill(1, at, at + part.length);
    for (let chars = Math.min(part.length, PIECE_CHARS) - 1; chars >= TOLD_CHARS_MIN; chars--)
      if (uncut.endsWith(part.slice(0, chars))) isHidden.fill(1, uncut.length - chars);
  }
  if (!isHidden.includes(1)) return text;
  let shown = "";
  let from = 0;
  for (const { index, 0: run } of isHidden.join("").matchAll(/1+/g)) {
    shown += text.slice(from, starts[index]) + HIDDEN;
    from = starts[index + run.length]!;
  }
  return shown + text.slice(from);
}

/** The value, and what of it an application tells alone: a token without its scheme, Basic's name and password. */
function partsOf(value: string): readonly string[] {
  const [, scheme = "", token = ""] = /^(\S+) +(.*)$/.exec(value) ?? [];
  const basic = scheme.toLowerCase() === "basic" ? Buffer.from(token, "base64").toString() : "";
  const parts = [token, basic, basic.slice(basic.indexOf(":") + 1)];
  return [value, ...parts.filter(({ length }) => length >= TOLD_CHARS_MIN)];
}

/** A character as URLs and forms, JSON and scripts, and HTML spell it. */
const SPELLED =
  /(?:%|\\u00|\\x)([0-9a-f]{2})|&#x0*([0-9a-f]{2});|&#0*(\d{2,3});|&(amp|lt|gt|quot|apos);|\\(["'/\\])/gi;
const NAMED: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
/** What may be the beginning of one, where a text was cut. */
const CUT_SPELLING = /(?:%[0-9a-f]?|\\(?:u0{0,2}[0-9a-f]?|x[0-9a-f]?)?|&[#\w]{0,7})$/i;
/** Spelled again by what it went through, such as HTML in JSON. */
const SPELLINGS_MAX = 3;

/**
 * How a text reads, however it is spelled, in small letters, a plus being a form's space. `starts`: where each
 * character begins in the text, and where the last one ends.
 */
function readingOf(text: string): { readonly read: string; readonly starts: readonly number[] } {
  let read = text;
  let starts = Array.from({ length: text.length + 1 }, (_, at) => at);
  for (let spellings = 0; spellings < SPELLINGS_MAX; spellings++) {
    const isStart = new Uint8Array(starts.length).fill(1);
    const before = read;
    read = before.replace(SPELLED, (spelled: string, ...found: (string | number | undefined)[]) => {
      const [code, hex = code, decimal, name, char] = found as (string | undefined)[];
      const at = found[5] as number;
      isStart.fill(0, at + 1, at + spelled.length);
      if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16));
      if (decimal !== undefined) return String.fromCharCode(Number(decimal));
      return name === undefined ? char! : NAMED[name.toLowerCase()]!;
    });
    if (read === before) break;
    starts = starts.filter((_, at) => isStart[at] === 1);
  }
  return { read: read.replaceAll("+", " ").replace(/[A-Z]+/g, (chars) => chars.toLowerCase()), starts };
}
