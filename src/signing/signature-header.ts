import { WebhookVerificationError } from "./verification-error.ts";

/** The request header that carries `t=<Unix seconds>,v1=<hex>[,v1=<hex>]`. */
export const SIGNATURE_HEADER = "extract-signature";

/** What an HTTP framework may hand over for one header: Node gives an array when its list was raw. */
export type HeaderValue = string | readonly string[] | null | undefined;

export interface ParsedSignatureHeader {
  /** As it stands in the header; this text is what was signed. */
  readonly timestampText: string;
  readonly timestampSeconds: number;
  /** At least one; each of 32 bytes. */
  readonly signatures: readonly Uint8Array[];
}

// Two signatures need 150 characters; the rest is room for schemes to come.
const HEADER_CHARACTERS_MAX = 8_192;
// A rotation needs two.
const SIGNATURES_MAX = 16;

const ITEM = /^([a-z0-9_]+)=([!-+\--~]*)$/;
// One spelling only: no sign, no leading zero, nothing beyond 2^53.
const TIMESTAMP = /^(?:0|[1-9][0-9]{0,14})$/;
const SIGNATURE = /^[0-9a-f]{64}$/;

/**
 * Strict on purpose: whatever a receiver reads leniently, a forger may write. Linear in the header's length.
 *
 * @throws WebhookVerificationError `header_missing` or `header_malformed`
 */
export function parseSignatureHeader(value: HeaderValue): ParsedSignatureHeader {
  let timestampText: string | undefined;
  const signatures: Uint8Array[] = [];
  for (const item of singleHeader(value).split(",")) {
    const [, scheme, text] = ITEM.exec(item) ?? [];
    if (scheme === undefined || text === undefined) throw malformed("an item is not of the form name=value");
    if (scheme === "t") {
      // Which one was signed must not be a guess.
      if (timestampText !== undefined) throw malformed("it holds more than one t");
      if (!TIMESTAMP.test(text))
        throw malformed("t is not a whole number of seconds in plain decimal digits");
      timestampText = text;
    } else if (scheme === "v1") {
      if (!SIGNATURE.test(text)) throw malformed("a v1 is not 64 lower-case hexadecimal digits");
      if (signatures.push(bytesOfHex(text)) > SIGNATURES_MAX)
        throw malformed(`it holds more than ${SIGNATURES_MAX} v1`);
    }
    // Any other scheme is a later one that stands beside v1.
  }
  if (timestampText === undefined) throw malformed("it holds no t");
  if (signatures.length === 0) throw malformed("it holds no v1");
  return { timestampText, timestampSeconds: Number(timestampText), signatures };
}

function singleHeader(value: unknown): string {
  const header = Array.isArray(value) && value.length < 2 ? value[0] : value;
  if (header === undefined || header === null || header === "") {
    throw new WebhookVerificationError(
      "header_missing",
      `The request has no ${SIGNATURE_HEADER} header. Pass the header's value as it arrived, and see that no proxy ` +
        "in front of the receiver removes it; a request without it does not come from the service.",
    );
  }
  if (Array.isArray(header)) throw malformed("it was sent more than once");
  if (typeof header !== "string") throw malformed(`it is not a string but a value of type ${typeof header}`);
  if (header.length > HEADER_CHARACTERS_MAX) {
    throw malformed(`it is ${header.length} characters long, where ${HEADER_CHARACTERS_MAX} are the limit`);
  }
  return header;
}

// By hand, because the parser is shared with runtimes that have no Buffer.
function bytesOfHex(hex: string): Uint8Array {
  return Uint8Array.from({ length: hex.length / 2 }, (_, at) =>
    Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16),
  );
}

function malformed(finding: string): WebhookVerificationError {
  return new WebhookVerificationError(
    "header_malformed",
    `The ${SIGNATURE_HEADER} header is not of the form t=<seconds>,v1=<hex>: ${finding}. ` +
      "Pass the header's value unchanged; a request that arrived like this does not come from the service.",
  );
}
