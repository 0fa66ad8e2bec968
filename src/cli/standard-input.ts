import { createReadStream, fstatSync } from "node:fs";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";

/**
 * Reads standard input to its end and never holds more than `bytesMax` of it.
 * @param variable the configuration's name of that limit, where it is configured
 * @throws UsageError when it cannot be read or is longer.
 */
export async function readStandardInput(
  { stdin, stderr }: Pick<ProcessContext, "stdin" | "stderr">,
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
    throw new UsageError(`Standard input cannot be read (${code}).`, { cause: error });
  }
  if (bytes > bytesMax) {
    const limit = `${bytesMax} bytes${variable === undefined ? "" : `, which ${variable} allows`}`;
    throw new UsageError(`Standard input is longer than ${limit}.`);
  }
  return Buffer.concat(chunks);
}

/** What stands on standard input. Node gives a folder as an empty text; this gives the error that it is. */
export function openStandardInput(): ProcessContext["stdin"] {
  const isFolder = fstatSync(0).isDirectory();
  return isFolder ? createReadStream("", { fd: 0, autoClose: false }) : process.stdin;
}
