/**
 * What an account's webhooks have beside the service's own header where its endpoint asks for it: the headers and keys
 * of Standard Webhooks (https://www.standardwebhooks.com), so that its libraries verify them, too.
 */
/** The message's id, Unix time in seconds, and `v1,<base64>`; several signatures have spaces between them. */
export const STANDARD_HEADERS = {
  id: "webhook-id",
  timestamp: "webhook-timestamp",
  signature: "webhook-signature",
} as const;

/** Of a key, by the specification. */
const KEY_BYTES_MIN = 24;
const KEY_BYTES_MAX = 64;
const SECRET = /^(?:whsec_)?([A-Za-z0-9+/]+)={0,2}$/;
const SIGNATURE = /^v1,([A-Za-z0-9+/]{43})=$/;
const SIGNATURES_MAX = 16;

/** The bytes that the base64 after `whsec_` stands for. Null: it is no secret of Standard Webhooks. */
export function standardKey(secret: string): Uint8Array<ArrayBuffer> | null {
  const [, text] = SECRET.exec(secret) ?? [];
  if (text === undefined || text.length % 4 === 1) return null;
  const key = bytesOfBase64(text);
  return key.length < KEY_BYTES_MIN || key.length > KEY_BYTES_MAX ? null : key;
}

/** Whether nobody can read another message into it, as a full stop would let them. */
export const isStandardId = (id: string): boolean => /^[!-\-/-~]{1,256}$/.test(id);

/** Each 32 bytes; a text: what is wrong. */
export function parseStandardSignatures(text: string): readonly Uint8Array[] | string {
  const signatures: Uint8Array[] = [];
  for (const item of text.split(" ")) {
    // Other versions are not this scheme's.
    if (!item.startsWith("v1,")) continue;
    const [, signature] = SIGNATURE.exec(item) ?? [];
    if (signature === undefined) return "a v1 is not the base64 of 32 bytes";
    if (signatures.push(bytesOfBase64(signature)) > SIGNATURES_MAX)
      return `it has more than ${SIGNATURES_MAX} v1`;
  }
  return signatures.length === 0 ? "it has no v1" : signatures;
}

// No Buffer: the parser is shared with runtimes that have none.
function bytesOfBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
