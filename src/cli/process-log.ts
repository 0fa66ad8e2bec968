import { type Logger, pino } from "pino";
import type { Config } from "../config/config.ts";
import type { Surroundings } from "./surroundings.ts";

/** PostgreSQL puts the values of the row at fault into these two: an analysis, a sealed secret. */
const ROW_VALUES = ["err.detail", "err.where", "err.cause.detail", "err.cause.where"];

/** The log of a process that stays: JSON, a line each, on standard output. */
export function createProcessLog(
  { logLevel }: Config,
  { stdout }: Pick<Surroundings, "stdout">,
  process: "serve" | "dispatch",
): Logger {
  const redact = { paths: ROW_VALUES, remove: true };
  return pino({ level: logLevel, base: { process }, redact }, stdout);
}
