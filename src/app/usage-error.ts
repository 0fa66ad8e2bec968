/**
 * What the caller can mend: an option, what stands on standard input, an id that does not exist. Its message is
 * one sentence for the terminal; the process ends with 2.
 */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
