import type { ProcessContext } from "../app/process-context.ts";

/**
 * Writes what a command found: in words on a terminal, as one line of JSON with --json and wherever a program
 * reads (a pipe, a file), so that no script ever has to parse words.
 */
export function answer(
  { stdout }: Pick<ProcessContext, "stdout">,
  options: { readonly json?: true | undefined },
  value: unknown,
  words: string,
): void {
  const isForPeople = stdout.isTTY === true && !options.json;
  stdout.write(`${isForPeople ? words : JSON.stringify(value)}\n`);
}
