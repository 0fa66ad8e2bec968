import { styleText } from "node:util";
import { type Announce, createAnnounce } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";

/** The demo's output: one line per event, with the seconds since the start. */
export type DemoOutput = {
  readonly announce: Announce;
  /** Left out of JSON. */
  heading(text: string): void;
  line: Announce;
  /** A line that begins with ✓ or ✗. */
  result(event: string, fields: Parameters<Announce>[1], isRight: boolean, text: string): void;
  green(text: string): string;
  red(text: string): string;
};

export function createDemoOutput(
  context: ProcessContext,
  options: { readonly json?: true | undefined },
): DemoOutput {
  const { stdout, env, now } = context;
  const announce = createAnnounce(context, options);
  const startedAtMs = now();
  const isColored = stdout.isTTY === true && !env.NO_COLOR && !options.json;
  const style = (format: Parameters<typeof styleText>[0]) => (text: string) =>
    isColored ? styleText(format, text, { validateStream: false }) : text;
  const [bold, dim, green, red] = [style("bold"), style("dim"), style("green"), style("red")];
  const line: Announce = (event, fields, text) => {
    const seconds = `${((now() - startedAtMs) / 1_000).toFixed(1)} s`;
    announce(event, fields, `${dim(seconds.padStart(7))}  ${text}`);
  };
  return {
    announce,
    heading: (text) => {
      if (!options.json) stdout.write(`\n${bold(text)}\n`);
    },
    line,
    result: (event, fields, isRight, text) =>
      line(event, fields, `${isRight ? green("✓") : red("✗")} ${text}`),
    green,
    red,
  };
}
