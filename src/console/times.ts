import { BoundedCache } from "../base/model/caches.ts";
import { DAY_MS } from "../base/model/time.ts";
import { type Html, html } from "./html.ts";

const FORMATS = {
  moment: { dateStyle: "medium", timeStyle: "medium" },
  day: { dateStyle: "short" },
  second: { timeStyle: "medium" },
  minute: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" },
  time: { timeStyle: "short" },
  parts: { dateStyle: "short", timeStyle: "medium", hourCycle: "h23" },
} as const satisfies Readonly<Record<string, Intl.DateTimeFormatOptions>>;

/** Making one takes longer than using it a hundred times; each takes some 40 KB, and a zone is written in many ways. */
const kept = new BoundedCache<string, Intl.DateTimeFormat>(400);

function formatOf(kind: keyof typeof FORMATS, timeZone: string | null): Intl.DateTimeFormat {
  const make = () => new Intl.DateTimeFormat("en-GB", { ...FORMATS[kind], timeZone: timeZone ?? "UTC" });
  return kept.get(`${kind} ${timeZone}`, make);
}

/** A moment as a viewer reads it, `22 Nov 2026, 14:03:05`, with the exact one at hand. @param iso ISO 8601 */
export function momentOf(iso: string, timeZone: string | null): Html {
  return html`<time datetime="${iso}" title="${iso}">${formatOf("moment", timeZone).format(new Date(iso))}</time>`;
}

/** The same in a row of many: `14:03:05` today, else `22 Nov, 14:03`. */
export function briefOf(iso: string, timeZone: string | null, nowMs: number): Html {
  const date = new Date(iso);
  const day = formatOf("day", timeZone);
  const text = formatOf(day.format(date) === day.format(nowMs) ? "second" : "minute", timeZone).format(date);
  return html`<time datetime="${iso}" title="${formatOf("moment", timeZone).format(date)}">${text}</time>`;
}

/** The same with how far off it is, for what somebody waits for: `22 Nov 2026, 14:03:05 (in 4 min)`. */
export function awaitedOf(iso: string, timeZone: string | null, nowMs: number): Html {
  return html`${momentOf(iso, timeZone)} <span class="whole">(${distanceOf(Date.parse(iso), nowMs)})</span>`;
}

/** `in 4 min`, `2 h ago`, `3 d ago`. */
export function distanceOf(ms: number, nowMs: number): string {
  const minutes = Math.abs(ms - nowMs) / 60_000;
  const [count, unit] =
    minutes < 90 ? [minutes, "min"] : minutes < 2_160 ? [minutes / 60, "h"] : [minutes / 1_440, "d"];
  const length = minutes < 1 ? "under 1 min" : `${Math.round(count)} ${unit}`;
  return ms > nowMs ? `in ${length}` : `${length} ago`;
}

/** What is quoted, and a time as `timeInWords` writes it. */
const QUOTE_OR_TIME = /("[^"]*"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)/;

/**
 * A text of the API, whose times are UTC, with times as a viewer reads them. What receivers wrote is quoted in it.
 *
 * @param nowMs how far off times after it are is said, too
 */
export function inZone(text: string, timeZone: string | null, nowMs = Number.POSITIVE_INFINITY): Html {
  const parts = text.split(QUOTE_OR_TIME).map((part, at) => {
    const ms = at % 2 === 0 || part.startsWith('"') ? Number.NaN : Date.parse(part);
    if (Number.isNaN(ms)) return part;
    const iso = new Date(ms).toISOString();
    return ms > nowMs ? awaitedOf(iso, timeZone, nowMs) : momentOf(iso, timeZone);
  });
  return html`${parts}`;
}

/** Until when what was published at that time can be read, and replayed. */
export function readableUntil(publishedAt: string, retentionMs: number, timeZone: string | null): Html {
  return momentOf(new Date(Date.parse(publishedAt) + retentionMs).toISOString(), timeZone);
}

/** A time of a zone's clock, as `<input type=datetime-local>` writes it: `2026-11-22T14:03`, perhaps with seconds. */
const WALL_TIME = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(\.\d{1,3})?)?$/;

/** A moment by a zone's clock, for `<input type=datetime-local>`; empty if `iso` is no moment. */
export function wallTimeOf(iso: string, timeZone: string | null): string {
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) return "";
  const text = new Date(wallMsAt(ms, timeZone)).toISOString().slice(0, -1);
  return text.replace(/(?::00)?\.000$/, "");
}

/**
 * The moment when a zone's clock shows this time, in ISO 8601; null if it is no such time. Of an hour that the clock
 * shows twice it is the first or the last one, so that a range leaves nothing out; in one that it skips, that of the
 * offset before.
 */
export function momentAt(wallTime: string, timeZone: string | null, which: "first" | "last"): string | null {
  const [whole, ...parts] = WALL_TIME.exec(wallTime) ?? [];
  if (whole === undefined) return null;
  const [year, month, day, hour, minute, second] = parts.map((part) => Number(part ?? 0));
  const wallMs = Date.UTC(year!, month! - 1, day, hour, minute, second, Number(parts[6] ?? 0) * 1_000);
  const around = [wallMs - DAY_MS, wallMs + DAY_MS].map((ms) => wallMs - (wallMsAt(ms, timeZone) - ms));
  const shown = around.filter((ms) => wallMsAt(ms, timeZone) === wallMs);
  const ms = shown.length === 0 ? around[0]! : which === "first" ? Math.min(...shown) : Math.max(...shown);
  return new Date(ms).toISOString();
}

/** What a zone's clock shows, as if it were UTC. */
function wallMsAt(ms: number, timeZone: string | null): number {
  const parts = formatOf("parts", timeZone).formatToParts(ms);
  const part = Object.fromEntries(parts.map(({ type, value }) => [type, Number(value)]));
  const { year = 0, month = 1, day, hour, minute, second } = part;
  return Date.UTC(year, month - 1, day, hour, minute, second) + (ms - Math.floor(ms / 1_000) * 1_000);
}

/** A moment by a zone's clock to the minute, `22 Nov, 14:03`, or without its date. */
export function clockText(ms: number, timeZone: string | null, from: "date" | "time"): string {
  return formatOf(from === "date" ? "minute" : "time", timeZone).format(ms);
}

/** `840 ms`, `1.2 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`. */
export function durationText(ms: number): string {
  if (ms < 60_000) return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
  const whole = (unitMs: number) => Math.floor(ms / unitMs);
  if (ms >= DAY_MS) return `${whole(DAY_MS)} d ${whole(3_600_000) % 24} h`;
  if (ms >= 3_600_000) return `${whole(3_600_000)} h ${whole(60_000) % 60} min`;
  return `${whole(60_000)} min ${whole(1_000) % 60} s`;
}

/** A length of time to plan by: `less than a minute`, `about 6 minutes`, `about 3 hours`. */
export function roughly(seconds: number): string {
  if (seconds < 60) return "less than a minute";
  const [count, unit] = seconds < 5_400 ? [seconds / 60, "minute"] : [seconds / 3_600, "hour"];
  const rounded = Math.round(count);
  return `about ${rounded} ${unit}${rounded === 1 ? "" : "s"}`;
}
