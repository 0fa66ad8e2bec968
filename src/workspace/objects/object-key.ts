/** S3's limit, in UTF-8. */
const KEY_BYTES_MAX = 1_024;

/** Control characters, and what XML, in which S3 answers, has no way to write. */
const UNWRITABLE = /[\p{Cc}\uFFFE\uFFFF]/u;

/**
 * Lets a key pass that every store takes as it is: at most 1,024 bytes, segments between single slashes, none of them
 * `.` or `..`. Keys are made by us, so one that does not pass is a bug, and no client's fault.
 * @throws RangeError
 */
export function checkObjectKey(key: string): void {
  const fault = faultOf(key);
  if (fault !== null) throw new RangeError(`${JSON.stringify(key)} is no key of an object: ${fault}.`);
}

function faultOf(key: string): string | null {
  if (!key.isWellFormed()) return "it is not Unicode text";
  if (Buffer.byteLength(key) > KEY_BYTES_MAX) return `it is longer than ${KEY_BYTES_MAX} bytes`;
  if (UNWRITABLE.test(key)) return "it has a character that cannot be written";
  const segments = key.split("/");
  if (segments.includes("")) return "one of its segments is empty";
  return segments.some((segment) => segment === "." || segment === "..") ? "it leads elsewhere" : null;
}
