/** Of a page's Markdown, in UTF-8: a long book's chapter, and rendered within seconds whatever it is. */
export const MARKDOWN_BYTES_MAX = 262_144;

/** What PostgreSQL takes, and not too long. */
export function isMarkdown(text: string): boolean {
  return text.isWellFormed() && !text.includes("\0") && Buffer.byteLength(text) <= MARKDOWN_BYTES_MAX;
}
