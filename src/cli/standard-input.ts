import { createReadStream, fstatSync } from "node:fs";
import { Mistake } from "./mistake.ts";
import type { Surroundings } from "./surroundings.ts";

/**
 * Reads standard input to its end and never holds more than `bytesMax` of it.
 * @param variable the configuration's name of that limit, where it is configured
 * @throws Mistake when it cannot be read or is longer.
 */
export async function readStandardInput(
  { stdin, stderr }: Pick<Surroundings, "stdin" | "stderr">,
  bytesMax: number,
  variable?: string,
): Promise<Buffer> {
  if (stdin.isTTY) stderr.write("Reading from the terminal; end with Ctrl-D.\n");
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of stdin) {
      bytes += chunk.length;
      if (bytes > bytesMax) break;
      chunks.push(chunk);
    }
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
    throw new Mistake(`Standard input cannot be read (${code}).`, { cause: error });
  }
  if (bytes > bytesMax) {
    const limit = `${bytesMax} bytes${variable === undefined ? "" : `, which ${variable} allows`}`;
    throw new Mistake(`Standard input is longer than ${limit}.`);
  }
  return Buffer.concat(chunks);
}

/** What stands on standard input. Node gives a folder as an empty text; this gives the error that it is. */
export function openStandardInput(): Surroundings["stdin"] {
  const isFolder = fstatSync(0).isDirectory();
  return isFolder ? createReadStream("", { fd: 0, autoClose: false }) : process.stdin;
}
