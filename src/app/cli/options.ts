import { createReadStream, fstatSync } from "node:fs";
import { text as textOf } from "node:stream/consumers";
import { InvalidArgumentError } from "commander";
import { DISPLAY_NAME_CHARS_MAX, isDisplayName, isUuid } from "../../base/model/formats.ts";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";

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

const FILE_BYTES_MAX = 16_384;

/**
 * The text of a small file that an option names; `/dev/stdin` works, too.
 * @throws UsageError for one that cannot be read or is longer than 16 KiB
 */
export async function readOptionFile(option: string, path: string): Promise<string> {
  const text = await textOf(createReadStream(path, { end: FILE_BYTES_MAX })).catch((cause) => {
    throw new UsageError(`The file that ${option} names cannot be read (${cause.code}).`, { cause });
  });
  if (text.length <= FILE_BYTES_MAX) return text;
  throw new UsageError(`The file that ${option} names is longer than ${FILE_BYTES_MAX} bytes.`);
}

/** Node reads a directory on standard input as empty; this stream fails as it should. */
export function openStandardInput(): ProcessContext["stdin"] {
  const isDirectory = fstatSync(0).isDirectory();
  return isDirectory ? createReadStream("", { fd: 0, autoClose: false }) : process.stdin;
}

/** A whole number in decimal digits, from `min` to `max` inclusive. */
export function parseWholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

const secondsPerUnit: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: DAY_SECONDS };

/** `90d`, `12h`, `30m`, `45s` → seconds. `max` is in seconds, a whole number of days. */
export function parseSeconds(max: number): (text: string) => number {
  return (text) => {
    const { amount, unit = "" } = /^(?<amount>\d{1,9})(?<unit>[smhd])$/.exec(text)?.groups ?? {};
    const seconds = Number(amount) * (secondsPerUnit[unit] ?? Number.NaN);
    if (seconds <= max) return seconds;
    throw new InvalidArgumentError(
      `It must be a duration such as 90d, 12h, 30m or 45s, at most ${max / DAY_SECONDS}d.`,
    );
  };
}

/** How long a command waits for others' transactions, unless --wait says so, and at most. */
export const WAIT_SECONDS = 600;
export const WAIT_SECONDS_MAX = 86_400;

/** A UUID. */
export function parseId(text: string): string {
  const id = text.toLowerCase();
  if (isUuid(id)) return id;
  throw new InvalidArgumentError("It must be an id such as 019aa3f0-7d2c-7c3a-9b1e-3f6f2f6f0a11.");
}

/** For an option with several ids. */
export function collectIds(text: string, previous: readonly string[] | undefined): readonly string[] {
  return [...(previous ?? []), parseId(text)];
}

/** A display name; spaces around it go. */
export function parseName(text: string): string {
  const name = text.trim();
  if (isDisplayName(name)) return name;
  throw new InvalidArgumentError(
    `It must have 1 to ${DISPLAY_NAME_CHARS_MAX} characters, none of them control characters.`,
  );
}

/** With its zone: what is stored is UTC, and a terminal may be elsewhere. */
export function parseTime(text: string): Date {
  const isWhole = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)$/.test(text);
  const time = Date.parse(text);
  if (isWhole && time >= 0) return new Date(time);
  throw new InvalidArgumentError("It must be a time with its zone, such as 2026-11-22T10:00Z.");
}

/** For options that can be repeated. */
export function collect(text: string, previous: readonly string[] | undefined): readonly string[] {
  return [...(previous ?? []), text];
}
