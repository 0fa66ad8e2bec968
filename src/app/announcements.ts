import type { ProcessContext } from "./process-context.ts";

/** Says what happens while a command runs that stays: in words, or with --json as a line of JSON each. */
export type Announce = (event: string, fields: Readonly<Record<string, unknown>>, words: string) => void;

export function createAnnounce(
  { stdout }: Pick<ProcessContext, "stdout">,
  options: { readonly json?: true | undefined },
): Announce {
  return (event, fields, words) => {
    stdout.write(`${options.json ? JSON.stringify({ event, ...fields }) : words}\n`);
  };
}
