import { BoundedCache } from "./caches.ts";

export const DAY_SECONDS = 86_400;
export const DAY_MS = DAY_SECONDS * 1_000;

/** Whether clocks and this runtime know it: `Europe/Berlin`, `UTC`. */
export function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** The local times that a cron expression means, as numbers that rise. */
export type CronTimes = {
  readonly minutes: readonly number[];
  readonly hours: readonly number[];
  /** `month`: 1 to 12; `dayOfWeek`: 0 is Sunday. */
  readonly isOn: (date: number, month: number, dayOfWeek: number) => boolean;
};

const digits = (count: number, length: number) =>
  Array.from({ length: count }, (_, number) => String(number).padStart(length, "0"));
const TWO_DIGITS = digits(60, 2);
const THREE_DIGITS = digits(1_000, 3);

/** Dates by the day's number since the epoch: those of a log, and a week more, are 40 or so. */
const DATES_MAX = 100;
const dates = new BoundedCache<number, string>(DATES_MAX);

/**
 * Both halves of what `toISOString` writes: `2026-03-01` and `12:00:05`. A page of the log holds 50 to 150 times, and
 * `toISOString` was more than half of the cost of shaping it.
 *
 * @param ms milliseconds since the epoch, not before it
 */
export function dateAndTime(ms: number): { readonly date: string; readonly time: string } {
  const day = Math.floor(ms / DAY_MS);
  const seconds = Math.floor((ms - day * DAY_MS) / 1_000);
  const hour = TWO_DIGITS[Math.floor(seconds / 3_600)];
  const minute = TWO_DIGITS[Math.floor(seconds / 60) % 60];
  return { date: dates.get(day, dateOf), time: `${hour}:${minute}:${TWO_DIGITS[seconds % 60]}` };
}

function dateOf(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

/** For sentences: `2026-03-01 12:00:05 UTC`. @param ms see `dateAndTime` */
export function timeInWords(ms: number): string {
  const { date, time } = dateAndTime(ms);
  return `${date} ${time} UTC`;
}

/** ISO 8601 in UTC with milliseconds: `2026-03-01T12:00:05.123Z`. @param ms see `dateAndTime` */
export function isoTime(ms: number): string {
  const { date, time } = dateAndTime(ms);
  // Joined, see `sentences` in explanation.ts.
  return [date, `${time}.${THREE_DIGITS[Math.floor(ms) % 1_000]}Z`].join("T");
}
