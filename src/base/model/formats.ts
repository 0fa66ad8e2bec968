import { MIMEType } from "node:util";

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Whether it is a UUID, of any version, as PostgreSQL writes it: in small letters. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

export const DISPLAY_NAME_CHARS_MAX = 200;

/** A name for people, of an account or a key. Terminals show it, so it has no control characters. */
export function isDisplayName(text: string): boolean {
  const isOfOneLine = text.isWellFormed() && !/\p{Cc}/u.test(text) && text.trim() === text;
  return isOfOneLine && text.length > 0 && [...text].length <= DISPLAY_NAME_CHARS_MAX;
}

/** A host name, or an address, as one can ask for it: URLs that SQL published may have others, which never resolve. */
export const TARGET_HOST = /^[A-Za-z0-9._:[\]-]{1,255}$/;

/** Some types are longer than anybody uses, and clients get them in a header. */
const SENDABLE = /^[\x20-\x7e]{1,255}$/;

/** A content type as it is compared and sent: `text/markdown;charset=UTF-8`. Null: it is no media type. */
export function tidyMediaType(text: string): string | null {
  if (!SENDABLE.test(text)) return null;
  try {
    const tidied = new MIMEType(text).toString();
    return SENDABLE.test(tidied) ? tidied : null;
  } catch {
    return null;
  }
}

/** RFC 5321 allows 254 characters in all, 64 before the @. */
export const MAIL_ADDRESS_CHARS_MAX = 254;
const LOCAL_PART_CHARS_MAX = 64;

// What browsers take for an address: no quotes, no comments, which nobody's address needs and parsers disagree on. But
// without `%` and `!`, by which relays forward, without `|`, by which they run programs, and without a `-` in front.
const LOCAL_PART = /^(?!-)[A-Za-z0-9#$&'*+/=?^_`{}~-]+(?:\.[A-Za-z0-9#$&'*+/=?^_`{}~-]+)*$/;
const DOMAIN = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$/;

/**
 * One plain address, `name@example.com`, safe in headers and SMTP commands as it is; the domain in lower case. Or a
 * sentence that says what is wrong.
 */
export function judgeMailAddress(text: string) {
  const refuse = (message: string) => ({ isAllowed: false, message }) as const;
  if (text.length > MAIL_ADDRESS_CHARS_MAX) return refuse("An address has at most 254 characters.");
  if (/\p{Cc}/u.test(text)) return refuse("An address has no line breaks or control characters.");
  if (!/^[\u0020-\u007e]*$/.test(text)) {
    return refuse("Only ASCII: write an international domain name in its xn-- form.");
  }
  const at = text.lastIndexOf("@");
  if (at < 1) return refuse("Not an e-mail address: expected name@example.com.");
  const local = text.slice(0, at);
  const domain = text.slice(at + 1).toLowerCase();
  if (local.length > LOCAL_PART_CHARS_MAX) return refuse("At most 64 characters may precede the @.");
  if (!LOCAL_PART.test(local)) {
    return refuse(
      "The part before the @ is not allowed: give one plain address, without a name, quotes or spaces.",
    );
  }
  if (!DOMAIN.test(domain)) return refuse("What follows the @ is not a public domain name.");
  return { isAllowed: true, address: `${local}@${domain}` } as const;
}

export const IMAGE_URL_CHARS_MAX = 2_048;

export function isImageUrl(text: string): boolean {
  return text.length <= IMAGE_URL_CHARS_MAX && URL.canParse(text) && new URL(text).protocol === "https:";
}

/** `a***@example.com`: for who knows the address to recognise. `address`: as judgeMailAddress gives it. */
export function maskMailAddress(address: string): string {
  return `${address.slice(0, 1)}***${address.slice(address.lastIndexOf("@"))}`;
}
