import { InvalidArgumentError } from "@commander-js/extra-typings";
import { DISPLAY_NAME_CHARS_MAX, isDisplayName } from "../model/display-name.ts";
import { DAY_SECONDS } from "../model/time.ts";
import { isUuid } from "../model/uuid.ts";

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

/** For options that can be repeated. */
export function collect(text: string, previous: readonly string[] | undefined): readonly string[] {
  return [...(previous ?? []), text];
}
