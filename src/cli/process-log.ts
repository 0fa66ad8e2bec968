import { type Logger, pino, stdSerializers } from "pino";
import type { Config } from "../config/config.ts";
import type { Surroundings } from "./surroundings.ts";

/** The log of a process that stays: JSON, a line each, on standard output. */
export function createProcessLog(
  { logLevel }: Config,
  { stdout }: Pick<Surroundings, "stdout">,
  process: "serve" | "dispatch",
): Logger {
  return pino({ level: logLevel, base: { process }, serializers: { err: errorFields } }, stdout);
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
