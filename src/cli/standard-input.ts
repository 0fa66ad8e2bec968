import { createReadStream, fstatSync } from "node:fs";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";

/**
 * Reads standard input to its end, and no more than `bytesMax`.
 * @param variable the environment variable that sets the limit, if one does
 * @throws UsageError when it cannot be read or is longer
 */
export async function readStandardInput(
  { stdin, stderr }: Pick<ProcessContext, "stdin" | "stderr">,
  bytesMax: number,
  variable?: string,
): Promise<Buffer> {
  if (stdin.isTTY) stderr.write("Reading from the terminal; press Ctrl-D to end.\n");
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
    const limit = `${bytesMax} bytes${variable === undefined ? "" : `, the limit set by ${variable}`}`;
    throw new UsageError(`Standard input is longer than ${limit}.`);
  }
  return Buffer.concat(chunks);
}

/** Node reads a directory on standard input as empty; this stream fails as it should. */
export function openStandardInput(): ProcessContext["stdin"] {
  const isDirectory = fstatSync(0).isDirectory();
  return isDirectory ? createReadStream("", { fd: 0, autoClose: false }) : process.stdin;
}
