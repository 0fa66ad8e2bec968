export const DISPLAY_NAME_CHARS_MAX = 200;

/** A name for people, of an account or a key. Terminals show it, so it has no control characters. */
export function isDisplayName(text: string): boolean {
  const isOfOneLine = text.isWellFormed() && !/\p{Cc}/u.test(text) && text.trim() === text;
  return isOfOneLine && text.length > 0 && [...text].length <= DISPLAY_NAME_CHARS_MAX;
}
