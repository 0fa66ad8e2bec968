import type { Surroundings } from "./surroundings.ts";

/**
 * Writes what a command found: in words on a terminal, as one line of JSON with --json and wherever a program
 * reads (a pipe, a file), so that no script ever has to parse words.
 */
export function answer(
  { stdout }: Pick<Surroundings, "stdout">,
  options: { readonly json?: true | undefined },
  value: unknown,
  words: string,
): void {
  const isForPeople = stdout.isTTY === true && !options.json;
  stdout.write(`${isForPeople ? words : JSON.stringify(value)}\n`);
}

/** Names and what they stand for, one below the other. */
export function inColumns(rows: Readonly<Record<string, string>>): string {
  const width = Math.max(...Object.keys(rows).map((name) => name.length));
  return Object.entries(rows)
    .map(([name, text]) => `${name.padEnd(width)}  ${text}`)
    .join("\n");
}
