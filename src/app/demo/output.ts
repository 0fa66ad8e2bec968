import { styleText } from "node:util";
import { type Announce, createAnnounce } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";

export type DemoOutput = ReturnType<typeof createDemoOutput>;

/** The demo's output: one line per event, with the seconds since the start. */
export function createDemoOutput(context: ProcessContext, options: { readonly json?: true | undefined }) {
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
  /** Left out of JSON. */
  const heading = (text: string) => {
    if (!options.json) stdout.write(`\n${bold(text)}\n`);
  };
  /** A line that begins with ✓ or ✗. */
  const result = (event: string, fields: Parameters<Announce>[1], isRight: boolean, text: string) =>
    line(event, fields, `${isRight ? green("✓") : red("✗")} ${text}`);
  return { announce, heading, line, result, green, red };
}
