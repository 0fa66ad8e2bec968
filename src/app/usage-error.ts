/**
 * Something that the caller can fix: an option, the input, an id that does not exist. The message is one sentence for
 * the terminal; the exit code is 2.
 */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
