import type { EventName } from "../model/events.ts";
import { type DeliveryStatus, isReplayable, REPLAYABLE_STATUSES } from "../model/statuses.ts";

/** The list's filters, each null when it was not asked for. They are ANDed. */
export type DeliveryFilter = {
  readonly status: DeliveryStatus | null;
  readonly event: EventName | null;
  readonly analysisId: string | null;
  /** Host name, or address literal, of the target; lower case, without the port. */
  readonly targetHost: string | null;
  readonly errorCode: string | null;
  readonly statusCode: number | null;
  /** Created at or after. */
  readonly createdAfter: Date | null;
  /** Created before. */
  readonly createdBefore: Date | null;
};

export const NO_FILTER: DeliveryFilter = {
  status: null,
  event: null,
  analysisId: null,
  targetHost: null,
  errorCode: null,
  statusCode: null,
  createdAfter: null,
  createdBefore: null,
};

export function isEverything(filter: DeliveryFilter): boolean {
  return Object.values(filter).every((asked) => asked === null);
}

/** A condition in SQL over `deliveries as d`, and the parameters that it names from `$first` on. */
export type Condition = { readonly text: string; readonly values: readonly unknown[] };

// Hosts are ASCII here, and by the rules of a language lower() takes two to three times as long.
const TARGET = `lower(coalesce(d.webhook_url, d.endpoint_url) collate "C")`;
const TARGET_HOST = `substring(${TARGET} from '^[^:]*://(\\[[^]]*\\]|[^/?:]*)')`;

/** Written out, so that the planner sees that the partial index covers it. */
export const IS_REPLAYABLE = `d.status in (${REPLAYABLE_STATUSES.map((status) => `'${status}'`).join(", ")})`;

/** What answers a filter: an index, or a look at each row. `asked` and `account` are parameters. */
type Filtering =
  | { readonly by: "index"; readonly text: (asked: string, account: string) => string }
  | { readonly by: "row"; readonly text: (asked: string) => string };

type Filterings = {
  readonly [Name in keyof DeliveryFilter]: (asked: NonNullable<DeliveryFilter[Name]>) => Filtering;
};

const byIndex = (text: (asked: string, account: string) => string) => (): Filtering => ({
  by: "index",
  text,
});
const byRow = (text: (asked: string) => string) => (): Filtering => ({ by: "row", text });

/** In the order in which the conditions are written. The time of a delivery stands in its id. */
const FILTERINGS: Filterings = {
  createdAfter: byIndex((asked) => `d.id >= sealpost.uuid_v7_floor(${asked})`),
  createdBefore: byIndex((asked) => `d.id < sealpost.uuid_v7_floor(${asked})`),
  analysisId: byIndex(
    (asked, account) =>
      // By the parameter, not by d.account_id: then it is looked up once, and not for every row.
      `d.id = (select a.delivery_id from sealpost.analyses a where a.account_id = ${account} and a.id = ${asked})`,
  ),
  status: (status) =>
    isReplayable(status)
      ? { by: "index", text: (asked) => `d.status = ${asked} and ${IS_REPLAYABLE}` }
      : { by: "row", text: (asked) => `d.status = ${asked}` },
  event: byRow((asked) => `d.event = ${asked}`),
  // The first part refuses most rows without the regular expression, which costs ten times as much.
  targetHost: byRow((asked) => `strpos(${TARGET}, ${asked}) > 0 and ${TARGET_HOST} = ${asked}`),
  errorCode: byRow((asked) => `d.last_error_code = ${asked}`),
  statusCode: byRow((asked) => `d.last_status_code = ${asked}`),
};

const NAMES = Object.keys(FILTERINGS) as readonly (keyof DeliveryFilter)[];

/** What an index answers; the account is always part of it. */
export function indexedCondition(accountId: string, filter: DeliveryFilter, first: number): Condition {
  const account = `$${first}`;
  const texts = [`d.account_id = ${account}`];
  const values: unknown[] = [accountId];
  for (const { by, text, value } of filteringsOf(filter)) {
    if (by !== "index") continue;
    texts.push(text(`$${first + values.length}`, account));
    values.push(value);
  }
  return { text: texts.join(" and "), values };
}

/** What has to be looked up in each row. */
export function rowCondition(filter: DeliveryFilter, first: number): Condition {
  const texts: string[] = [];
  const values: unknown[] = [];
  for (const { by, text, value } of filteringsOf(filter)) {
    if (by !== "row") continue;
    texts.push(text(`$${first + values.length}`));
    values.push(value);
  }
  return { text: texts.join(" and ") || "true", values };
}

function filteringsOf(filter: DeliveryFilter) {
  return NAMES.flatMap((name) => filteringOf(filter, name));
}

/** None when it was not asked for. */
function filteringOf<Name extends keyof DeliveryFilter>(
  filter: DeliveryFilter,
  name: Name,
): readonly (Filtering & { readonly value: unknown })[] {
  const value = filter[name];
  return value === null ? [] : [{ ...FILTERINGS[name](value), value }];
}
