import type { ProcessContext } from "./process-context.ts";

/**
 * Something that the caller can fix: an option, the input, an id that does not exist. The message is one sentence for
 * the terminal; the exit code is 2.
 */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

type OutputOptions = { readonly json?: true | undefined };

/**
 * Prints a command's result: as text on a terminal, as one line of JSON with --json and wherever a program reads (a
 * pipe, a file), so that no script has to parse text.
 */
export function printResult(
  { stdout }: Pick<ProcessContext, "stdout">,
  options: OutputOptions,
  value: unknown,
  text: string,
): void {
  const isForPeople = stdout.isTTY === true && !options.json;
  stdout.write(`${isForPeople ? text : JSON.stringify(value)}\n`);
}

/** Prints an event of a long-running command: as text, or as one line of JSON with --json. */
export type Announce = (event: string, fields: Readonly<Record<string, unknown>>, text: string) => void;

export function createAnnounce({ stdout }: Pick<ProcessContext, "stdout">, options: OutputOptions): Announce {
  return (event, fields, text) => {
    stdout.write(`${options.json ? JSON.stringify({ event, ...fields }) : text}\n`);
  };
}

/** Tells what is being done, line by line; not the same one twice, as a table has many pages. */
export function tellOnce({ stderr }: Pick<ProcessContext, "stderr">): (line: string) => void {
  let last = "";
  return (line) => {
    if (line !== last) stderr.write(`${line}\n`);
    last = line;
  };
}

/** A table with columns as wide as their widest cell and a rule below the head. */
export function textTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  const lines = all.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "));
  const rule = widths.map((width) => "─".repeat(width)).join("  ");
  return [lines[0], rule, ...lines.slice(1)].map((line) => `  ${line?.trimEnd()}`).join("\n");
}

/** One name and its value per line, the values aligned. */
export function inColumns(rows: Readonly<Record<string, string>>): string {
  const width = Math.max(...Object.keys(rows).map((name) => name.length));
  return Object.entries(rows)
    .map(([name, text]) => `${name.padEnd(width)}  ${text}`)
    .join("\n");
}

/** Lines between two rules, with an empty line around, so that they stand out among log lines. */
export function inFrame(text: string): string {
  const lines = text.split("\n").map((line) => `  ${line}`.trimEnd());
  const rule = "━".repeat(Math.max(...lines.map((line) => line.length)) + 2);
  return ["", rule, "", ...lines, "", rule, ""].join("\n");
}
