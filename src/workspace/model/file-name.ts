/** File systems take this much, in UTF-8. */
export const FILE_NAME_BYTES_MAX = 255;

/** Path separators, control characters, and what an object's key cannot have. */
const UNFIT = /[/\\\p{Cc}\p{Cs}\uFFFE\uFFFF]/u;

/** Whoever downloads a space gets files of these names: one must not lead elsewhere. */
export function isFileName(text: string): boolean {
  const bytes = Buffer.byteLength(text);
  return bytes > 0 && bytes <= FILE_NAME_BYTES_MAX && !UNFIT.test(text) && text !== "." && text !== "..";
}
