import { hostname } from "node:os";
import { type Logger, pino, stdSerializers } from "pino";
import type { Config } from "../base/config/config.ts";
import type { ProcessContext } from "./process-context.ts";

/** The log of a long-running process on standard output: JSON lines, or the same for people who develop. */
export async function createProcessLog(
  { logLevel, logFormat, cell }: Config,
  { stdout }: Pick<ProcessContext, "stdout">,
  name: "serve" | "dispatch",
): Promise<Logger> {
  // `host` is a receiver's in the lines of attempts.
  const base = { process: name, hostname: hostname(), pid: process.pid, ...(cell !== null && { cell }) };
  const options = {
    level: logLevel,
    base,
    serializers: { err: errorFields },
    formatters: { level: (level: string) => ({ level }) },
    timestamp: pino.stdTimeFunctions.isoTime,
  };
  // Imported here, so that nobody else spends memory on it.
  const pretty = logFormat === "pretty" ? (await import("pino-pretty")).prettyFactory : null;
  const format = pretty?.({ colorize: stdout.isTTY === true, ignore: "hostname", translateTime: false });
  return pino(options, batchByTurn(stdout, format));
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
function batchByTurn(stdout: ProcessContext["stdout"], format = (line: string) => line) {
  let lines = "";
  const flush = () => {
    const text = lines;
    lines = "";
    if (text !== "") stdout.write(text);
  };
  // After an exception that ends the process there is no next turn.
  process.once("exit", flush);
  return {
    write: (line: string) => {
      if (lines === "") setImmediate(flush);
      lines += format(line);
    },
  };
}
