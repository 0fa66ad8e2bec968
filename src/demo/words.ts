import { styleText } from "node:util";
import type { Announce } from "../app/announcements.ts";
import { createAnnounce } from "../app/announcements.ts";
import type { ProcessContext } from "../app/process-context.ts";

/** How the demo speaks: a line for each thing that happens, with the seconds since its beginning. */
export type Words = {
  readonly announce: Announce;
  heading(text: string): void;
  /** `atMs`: Unix time in milliseconds; left out: now. */
  line(event: string, fields: Readonly<Record<string, unknown>>, text: string, atMs?: number): void;
  good(text: string): string;
  bad(text: string): string;
  dim(text: string): string;
};

export function createWords(context: ProcessContext, options: { readonly json?: true | undefined }): Words {
  const { stdout, env, now } = context;
  const announce = createAnnounce(context, options);
  const startedAtMs = now();
  const isColoured = stdout.isTTY === true && !env.NO_COLOR && !options.json;
  const paint = (format: Parameters<typeof styleText>[0]) => (text: string) =>
    isColoured ? styleText(format, text, { validateStream: false }) : text;
  const [bold, dim] = [paint("bold"), paint("dim")];
  return {
    announce,
    heading: (text) => {
      if (!options.json) stdout.write(`\n${bold(text)}\n`);
    },
    line: (event, fields, text, atMs = now()) => {
      const seconds = `${((atMs - startedAtMs) / 1_000).toFixed(1)} s`;
      announce(event, fields, `${dim(seconds.padStart(7))}  ${text}`);
    },
    good: paint("green"),
    bad: paint("red"),
    dim,
  };
}
