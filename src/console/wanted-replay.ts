import { REPLAYABLE_STATUSES } from "../model/statuses.ts";
import { type Fields, filtersOf, searchOf, valuesOf } from "./log-filters.ts";

/** A bulk replay that somebody is about to start, as the form's page has it in its address. */
export type WantedReplay = {
  readonly filters: Fields;
  readonly ratePerSecond: string;
  readonly note: string;
};

/** As the API's own default. */
const RATE_PER_SECOND = "10";

/** What begins with `_` belongs to the form alone. Names that nobody knows are left for the API to refuse. */
export function wantedOf(fields: Fields, timeZone: string | null): WantedReplay {
  const asked = Object.entries(fields).filter(([name]) => !name.startsWith("_"));
  const { rate_per_second, note, ...rest } = filtersOf(Object.fromEntries(asked), timeZone);
  const filters = { ...rest };
  if (filters.status === undefined) filters.status = [...REPLAYABLE_STATUSES];
  for (const name of ["created_after", "created_before"]) {
    const ms = Date.parse(String(filters[name]));
    if (!Number.isNaN(ms)) filters[name] = new Date(ms).toISOString();
  }
  return { filters, ratePerSecond: String(rate_per_second ?? RATE_PER_SECOND), note: String(note ?? "") };
}

export function fieldsOf(form: URLSearchParams): Fields {
  return Object.fromEntries([...new Set(form.keys())].map((name) => [name, form.getAll(name)]));
}

/** Of the form's page. */
export function searchOfWanted({ filters, ratePerSecond, note }: WantedReplay, more: Fields = {}): string {
  return searchOf({
    ...filters,
    ...(ratePerSecond !== RATE_PER_SECOND && { rate_per_second: ratePerSecond }),
    ...(note !== "" && { note }),
    ...more,
  });
}

/** The same for the same set, in whichever order its parts were given. */
export function fingerprintOf({ filters }: WantedReplay): string {
  const names = Object.keys(filters).sort();
  return searchOf(Object.fromEntries(names.map((name) => [name, [...valuesOf(filters, name)].sort()])));
}

/** The request's body. */
export function bodyOf({ filters, ratePerSecond, note }: WantedReplay): Readonly<Record<string, unknown>> {
  const members = Object.entries(filters).map(([name, value]) => [
    name,
    name.startsWith("status_code") ? numberOr(String(value)) : value,
  ]);
  const filter = Object.fromEntries(members);
  if (valuesOf(filters, "status").length === REPLAYABLE_STATUSES.length) delete filter.status;
  return { filter, rate_per_second: numberOr(ratePerSecond), ...(note !== "" && { note }) };
}

/** What is no number is refused by the API, in its words. */
export function numberOr(text: string): number | string {
  return /^\d{1,9}$/.test(text) ? Number(text) : text;
}
