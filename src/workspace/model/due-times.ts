import { type CronTimes, DAY_MS } from "../../base/model/time.ts";

/** A February 29 may be eight years away. Whoever is not due until then never is. */
const DAYS_AHEAD = 8 * 366 + 2;

const MINUTE_MS = 60_000;

const clocks = new Map<string, Intl.DateTimeFormat>();

/** By how many milliseconds the clocks of a time zone are ahead of UTC. */
function offsetMs(timeZone: string, atMs: number): number {
  // Their names are taken in any case.
  const name = timeZone.toLowerCase();
  const clock = clocks.get(name) ?? new Intl.DateTimeFormat("en", { timeZone, timeZoneName: "longOffset" });
  clocks.set(name, clock);
  const [, sign, hours, minutes] = /GMT([+-])(\d\d):(\d\d)/.exec(clock.format(atMs)) ?? [];
  const ms = (Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * MINUTE_MS;
  return sign === "-" ? -ms : ms;
}

/** A schedule: local times of a place. */
export type DueTimes = { readonly cron: CronTimes; readonly timeZone: string };

/** The day of local time, as UTC would have its midnight. */
function dayOf(timeZone: string, atMs: number): number {
  return Math.floor((atMs + offsetMs(timeZone, atMs)) / DAY_MS) * DAY_MS;
}

/**
 * When it is due on that local day. A time that the clocks leave out is due as much later as they are put forward. Of
 * an hour that comes twice the first counts; where every hour does, both.
 */
function dueOnDay({ cron, timeZone }: DueTimes, dayMs: number): readonly number[] {
  const day = new Date(dayMs);
  if (!cron.isOn(day.getUTCDate(), day.getUTCMonth() + 1, day.getUTCDay())) return [];
  const locals = cron.hours.flatMap((hour) =>
    cron.minutes.map((minute) => dayMs + (hour * 60 + minute) * MINUTE_MS),
  );
  // Clocks change by a day at most, and then not again for two.
  let [still, changed] = [dayMs - DAY_MS, dayMs + 2 * DAY_MS];
  const [before, after] = [offsetMs(timeZone, still), offsetMs(timeZone, changed)];
  if (before === after) return locals.map((local) => local - before);
  while (changed - still > MINUTE_MS) {
    const middle = still + Math.floor((changed - still) / 2 / MINUTE_MS) * MINUTE_MS;
    if (offsetMs(timeZone, middle) === before) still = middle;
    else changed = middle;
  }
  return locals.flatMap((local) => {
    const [early, late] = [local - before, local - after];
    if (late < changed) return [early];
    return early < changed ? (cron.hours.length === 24 ? [early, late] : [early]) : [late];
  });
}

/** On that day and the next: clocks put forward at midnight bring times of the one into the other. */
const dueAround = (due: DueTimes, dayMs: number) => [
  ...dueOnDay(due, dayMs),
  ...dueOnDay(due, dayMs + DAY_MS),
];

/** When it is due next. Null: never. */
export function nextDue(due: DueTimes, afterMs: number): number | null {
  const first = dayOf(due.timeZone, afterMs) - DAY_MS;
  for (let n = 0; n < DAYS_AHEAD; n++) {
    const next = Math.min(...dueAround(due, first + n * DAY_MS).filter((at) => at > afterMs));
    if (Number.isFinite(next)) return next;
  }
  return null;
}

/** When it was due last, later than `afterMs`. Null: not since then. */
export function lastDue(due: DueTimes, afterMs: number, untilMs: number): number | null {
  const first = dayOf(due.timeZone, afterMs) - DAY_MS;
  for (let day = dayOf(due.timeZone, untilMs); day >= first; day -= DAY_MS) {
    const last = Math.max(...dueAround(due, day).filter((at) => at > afterMs && at <= untilMs));
    if (Number.isFinite(last)) return last;
  }
  return null;
}
