/** RFC 5321 allows 254 characters in all, 64 before the @. */
export const MAIL_ADDRESS_CHARS_MAX = 254;
const LOCAL_PART_CHARS_MAX = 64;

export type JudgedMailAddress =
  | { readonly isAllowed: true; readonly address: string }
  /** A sentence that says what is wrong. */
  | { readonly isAllowed: false; readonly message: string };

// What browsers take for an address: no quotes, no comments, which nobody's address needs and parsers disagree on. But
// without `%` and `!`, by which relays forward, without `|`, by which they run programs, and without a `-` in front.
const LOCAL_PART = /^(?!-)[A-Za-z0-9#$&'*+/=?^_`{}~-]+(?:\.[A-Za-z0-9#$&'*+/=?^_`{}~-]+)*$/;
const DOMAIN = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])$/;

/**
 * One plain address, `name@example.com`: a text that can stand in a mail's headers and in an SMTP command as it is. The
 * domain comes back in lower case.
 */
export function judgeMailAddress(text: string): JudgedMailAddress {
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
  if (local.length > LOCAL_PART_CHARS_MAX) return refuse("At most 64 characters may stand before the @.");
  if (!LOCAL_PART.test(local)) {
    return refuse(
      "What stands before the @ is not allowed: one plain address, without a name, quotes or spaces.",
    );
  }
  if (!DOMAIN.test(domain)) return refuse("What follows the @ is not a public domain name.");
  return { isAllowed: true, address: `${local}@${domain}` };
}

/**
 * `a***@example.com`: for who knows the address to recognise, and nobody else to write to. `address`: as
 * judgeMailAddress gives it.
 */
export function maskMailAddress(address: string): string {
  return `${address.slice(0, 1)}***${address.slice(address.lastIndexOf("@"))}`;
}
