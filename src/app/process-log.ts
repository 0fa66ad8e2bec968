import { type Logger, pino, stdSerializers } from "pino";
import type { Config } from "../config/config.ts";
import type { ProcessContext } from "./process-context.ts";

/** The log of a process that stays: JSON, a line each, on standard output. */
export function createProcessLog(
  { logLevel }: Config,
  { stdout }: Pick<ProcessContext, "stdout">,
  name: "serve" | "dispatch",
): Logger {
  const options = { level: logLevel, base: { process: name }, serializers: { err: errorFields } };
  return pino(options, writesByTurn(stdout));
}

/**
 * What an error says of itself, its causes included, and no more. Whatever else hangs on it stays out: PostgreSQL puts
 * the row at fault, an analysis or a sealed secret, into fields of its own.
 */
function errorFields(error: unknown) {
  if (!(error instanceof Error)) return { message: String(error) };
  const { type, message, stack } = stdSerializers.err(error);
  return { type, code: (error as NodeJS.ErrnoException).code, message, stack };
}

/**
 * Writes the lines of one turn of the event loop together: hundreds of attempts end in one when a batch is recorded,
 * and a write for each costs a third again of making the line. Nothing is kept beyond the turn, nor lost at the end.
 */
function writesByTurn(stdout: ProcessContext["stdout"]): { write(line: string): void } {
  let lines = "";
  const flush = () => {
    const text = lines;
    lines = "";
    if (text !== "") stdout.write(text);
  };
  // An exception that ends the process leaves no further turn.
  process.once("exit", flush);
  return {
    write: (line) => {
      if (lines === "") setImmediate(flush);
      lines += line;
    },
  };
}
