import { hostname } from "node:os";
import { type Logger, pino, stdSerializers } from "pino";
import type { Config } from "../base/config/config.ts";
import type { ProcessContext } from "./process-context.ts";

/** The log of a long-running process: JSON lines on standard output. */
export function createProcessLog(
  { logLevel, cell }: Config,
  { stdout }: Pick<ProcessContext, "stdout">,
  name: "serve" | "dispatch",
): Logger {
  // `host` is a receiver's in the lines of attempts.
  const base = { process: name, hostname: hostname(), pid: process.pid, ...(cell !== null && { cell }) };
  const options = { level: logLevel, base, serializers: { err: errorFields } };
  return pino(options, batchByTurn(stdout));
}

/**
 * An error's type, code, message and stack, with its causes, and nothing else: PostgreSQL adds fields that hold the
 * offending row, which may be an analysis or an encrypted secret.
 */
function errorFields(error: unknown) {
  if (!(error instanceof Error)) return { message: String(error) };
  const { type, message, stack } = stdSerializers.err(error);
  return { type, code: (error as NodeJS.ErrnoException).code, message, stack };
}

/**
 * Writes the lines of one turn of the event loop together. Recording a batch ends hundreds of attempts in one turn, and
 * one write each would cost a third of what formatting the line does. Nothing is held beyond the turn or lost at exit.
 */
function batchByTurn(stdout: ProcessContext["stdout"]): { write(line: string): void } {
  let lines = "";
  const flush = () => {
    const text = lines;
    lines = "";
    if (text !== "") stdout.write(text);
  };
  // After an exception that ends the process there is no next turn.
  process.once("exit", flush);
  return {
    write: (line) => {
      if (lines === "") setImmediate(flush);
      lines += line;
    },
  };
}
