import { isStandardId, parseStandardSignatures, STANDARD_HEADERS } from "./standard-webhooks.ts";
import { WebhookVerificationError } from "./verification-error.ts";

/** The request header that carries `t=<Unix seconds>,v1=<hex>[,v1=<hex>]`. */
export const SIGNATURE_HEADER = "extract-signature";

/** A header's value as HTTP frameworks represent it; some give an array. */
export type HeaderValue = string | readonly string[] | null | undefined;

/** A request's headers: a `Headers` object, or a record as Node, express and fastify have it. */
export type RequestHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: HeaderValue; readonly get?: undefined };

export interface ParsedSignatureHeader {
  /** What was signed before the body, exactly as in the header. */
  readonly signedPrefix: string;
  /** Whether the key is what the secret's base64 stands for. */
  readonly isStandard: boolean;
  readonly timestampSeconds: number;
  /** At least one, each 32 bytes. */
  readonly signatures: readonly Uint8Array[];
}

// Two signatures take 150 characters; the rest is room for future schemes.
const HEADER_CHARACTERS_MAX = 8_192;
// A rotation needs two.
const SIGNATURES_MAX = 16;

const ITEM = /^([a-z0-9_]+)=([!-+\--~]*)$/;
// One spelling per number: no sign, no leading zeros, nothing beyond 2^53.
const TIMESTAMP = /^(?:0|[1-9][0-9]{0,14})$/;
const SIGNATURE = /^[0-9a-f]{64}$/;

/** The service's own signature if there is one, else that of Standard Webhooks. @throws as parseSignatureHeader */
export function parseHeaders(headers: RequestHeaders): ParsedSignatureHeader {
  const { id, timestamp, signature } = STANDARD_HEADERS;
  const find = (name: string) => findHeader(headers, name);
  const standard = find(signature);
  if (isMissing(standard) || !isMissing(find(SIGNATURE_HEADER)))
    return parseSignatureHeader(find(SIGNATURE_HEADER));
  const idText = singleHeader(find(id), id);
  const timestampText = singleHeader(find(timestamp), timestamp);
  if (!TIMESTAMP.test(timestampText)) throw malformed("it is not in decimal digits", timestamp);
  if (!isStandardId(idText)) throw malformed("it is not 1 to 256 visible characters without a full stop", id);
  const signatures = parseStandardSignatures(singleHeader(standard, signature));
  if (typeof signatures === "string") throw malformed(signatures, signature);
  const timestampSeconds = Number(timestampText);
  return { signedPrefix: `${idText}.${timestampText}.`, isStandard: true, timestampSeconds, signatures };
}

/** Names in any case; one that is there twice is told from one that is there once. */
function findHeader(headers: RequestHeaders, name: string): HeaderValue {
  if (typeof headers.get === "function") return headers.get(name);
  const found = Object.entries(headers).filter(([given]) => given.toLowerCase() === name);
  return found.flatMap(([, value]) => (value ?? []) as string | readonly string[]);
}

const isMissing = (value: HeaderValue) =>
  typeof value === "object" && value !== null ? value.every((text) => text === "") : !value;

/** Strict: leniency helps forgers. @throws WebhookVerificationError `header_missing` or `header_malformed` */
export function parseSignatureHeader(value: HeaderValue): ParsedSignatureHeader {
  let timestampText: string | undefined;
  const signatures: Uint8Array[] = [];
  for (const item of singleHeader(value, SIGNATURE_HEADER).split(",")) {
    const [, scheme, text] = ITEM.exec(item) ?? [];
    if (scheme === undefined || text === undefined) throw malformed("an item is not name=value");
    if (scheme === "t") {
      // Never guess which one was signed.
      if (timestampText !== undefined) throw malformed("it has more than one t");
      if (!TIMESTAMP.test(text)) throw malformed("t is not a whole number of seconds in decimal digits");
      timestampText = text;
    } else if (scheme === "v1") {
      if (!SIGNATURE.test(text)) throw malformed("a v1 is not 64 lowercase hex digits");
      if (signatures.push(bytesOfHex(text)) > SIGNATURES_MAX)
        throw malformed(`it has more than ${SIGNATURES_MAX} v1`);
    }
    // Other schemes are future ones beside v1: ignored.
  }
  if (timestampText === undefined) throw malformed("it has no t");
  if (signatures.length === 0) throw malformed("it has no v1");
  const signedPrefix = `${timestampText}.`;
  return { signedPrefix, isStandard: false, timestampSeconds: Number(timestampText), signatures };
}

function singleHeader(value: unknown, name: string): string {
  const header = Array.isArray(value) && value.length < 2 ? value[0] : value;
  if (header === undefined || header === null || header === "") {
    throw new WebhookVerificationError(
      "header_missing",
      `The request has no ${name} header. Pass the header's value as received, and check that no proxy ` +
        "in front of the receiver removes it. A request sent without it is not from the service.",
    );
  }
  if (Array.isArray(header)) throw malformed("it was sent more than once", name);
  if (typeof header !== "string") throw malformed(`it is a ${typeof header}, not a string`, name);
  if (header.length > HEADER_CHARACTERS_MAX) {
    throw malformed(`it is ${header.length} characters long; the limit is ${HEADER_CHARACTERS_MAX}`, name);
  }
  return header;
}

// Hand-written: the parser is shared with runtimes that have no Buffer.
function bytesOfHex(hex: string): Uint8Array {
  return Uint8Array.from({ length: hex.length / 2 }, (_, at) =>
    Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16),
  );
}

const FORMS: Readonly<Record<string, string>> = {
  [SIGNATURE_HEADER]: "t=<seconds>,v1=<hex>",
  [STANDARD_HEADERS.id]: "a message's id",
  [STANDARD_HEADERS.timestamp]: "Unix time in seconds",
  [STANDARD_HEADERS.signature]: "v1,<base64>",
};

function malformed(finding: string, name: string = SIGNATURE_HEADER): WebhookVerificationError {
  return new WebhookVerificationError(
    "header_malformed",
    `The ${name} header is not ${FORMS[name]}: ${finding}. ` +
      "Pass the header's value unchanged. A request that arrived like this is not from the service.",
  );
}
