import type { EventName } from "../base/model/events.ts";
import type { Reader } from "../base/model/reader.ts";
import {
  DELIVERY_STATUSES,
  type DeliveryStatus,
  type EndReason,
  isReplayable,
  REPLAYABLE_STATUSES,
} from "../base/model/statuses.ts";
import { sightOf } from "../delivery/visibility-sql.ts";

/** The list's filters, each null when it was not asked for. They are ANDed. */
export type DeliveryFilter = {
  /** One of these. */
  readonly status: readonly DeliveryStatus[] | null;
  /** Abandoned for one of these. */
  readonly reason: readonly EndReason[] | null;
  readonly event: EventName | null;
  readonly analysisId: string | null;
  /** Host name, or address literal, of the target; lower case, without the port. */
  readonly targetHost: string | null;
  readonly errorCode: string | null;
  readonly statusCode: number | null;
  readonly statusCodeMin: number | null;
  readonly statusCodeMax: number | null;
  /** The bulk replay that started its current run. */
  readonly replayId: string | null;
  /** Created at or after. */
  readonly createdAfter: Date | null;
  /** Created before. */
  readonly createdBefore: Date | null;
};

export const NO_FILTER: DeliveryFilter = {
  status: null,
  reason: null,
  event: null,
  analysisId: null,
  targetHost: null,
  errorCode: null,
  statusCode: null,
  statusCodeMin: null,
  statusCodeMax: null,
  replayId: null,
  createdAfter: null,
  createdBefore: null,
};

export function isEverything(filter: DeliveryFilter): boolean {
  return Object.values(filter).every((asked) => asked === null);
}

/**
 * The statuses that can fit, in their usual order; null: all. Only what was abandoned has a reason, so asking for one
 * asks for that status.
 */
export function fittingStatuses({ status, reason }: DeliveryFilter): readonly DeliveryStatus[] | null {
  if (status === null && reason === null) return null;
  const fitting = DELIVERY_STATUSES.filter(
    (one) => (status === null || status.includes(one)) && (reason === null || one === "abandoned"),
  );
  return fitting.length === DELIVERY_STATUSES.length ? null : fitting;
}

/** A condition in SQL over `deliveries as d`, and the parameters that it names from `$first` on. */
export type Condition = { readonly text: string; readonly values: readonly unknown[] };

// Hosts are ASCII here, and by the rules of a language lower() takes two to three times as long.
const TARGET = `lower(coalesce(d.webhook_url, d.endpoint_url) collate "C")`;
/** Null for a delivery without a target. */
export const TARGET_HOST = `substring(${TARGET} from '^[^:]*://(\\[[^]]*\\]|[^/?:]*)')`;

/** Written out, so that the planner sees that the partial index covers it. */
export const IS_REPLAYABLE = `d.status in (${REPLAYABLE_STATUSES.map((status) => `'${status}'`).join(", ")})`;

/** What answers a part of a filter: an index, or a look at each row. */
type Filtering = {
  readonly by: "index" | "row";
  /** `asked` and `account` are parameters. */
  readonly text: (asked: string, account: string) => string;
  /** The parameter `asked`; undefined: the text has none. */
  readonly value: unknown;
};

type Filterings = {
  readonly [Name in Exclude<keyof DeliveryFilter, "status">]: (
    asked: NonNullable<DeliveryFilter[Name]>,
  ) => Filtering;
};

const byIndex =
  (text: Filtering["text"]) =>
  (value: unknown): Filtering => ({ by: "index", text, value });
const byRow =
  (text: Filtering["text"]) =>
  (value: unknown): Filtering => ({ by: "row", text, value });

/** In the order in which the conditions are written. The time of a delivery stands in its id. */
const FILTERINGS: Filterings = {
  createdAfter: byIndex((asked) => `d.id >= sealpost.uuid_v7_floor(${asked})`),
  createdBefore: byIndex((asked) => `d.id < sealpost.uuid_v7_floor(${asked})`),
  analysisId: byIndex(
    (asked, account) =>
      // By the parameter, not by d.account_id: then it is looked up once, and not for every row.
      `d.id = (select a.delivery_id from sealpost.analyses a where a.account_id = ${account} and a.id = ${asked})`,
  ),
  reason: byRow((asked) => `d.reason = any (${asked}::text[])`),
  event: byRow((asked) => `d.event = ${asked}`),
  // The first part refuses most rows without the regular expression, which costs ten times as much.
  targetHost: byRow((asked) => `strpos(${TARGET}, ${asked}) > 0 and ${TARGET_HOST} = ${asked}`),
  errorCode: byRow((asked) => `d.last_error_code = ${asked}`),
  statusCode: byRow((asked) => `d.last_status_code = ${asked}`),
  statusCodeMin: byRow((asked) => `d.last_status_code >= ${asked}`),
  statusCodeMax: byRow((asked) => `d.last_status_code <= ${asked}`),
  replayId: byRow(
    (asked) =>
      `exists (select from sealpost.replay_items i
        where i.delivery_id = d.id and i.replay_id = ${asked} and i.run = d.run)`,
  ),
};

/** The same by the items of the replay, which are in the order of their deliveries. */
const BY_ITEMS: Filterings["replayId"] = byIndex(
  (asked) => `i.replay_id = ${asked} and i.outcome = 'replayed'`,
);

const NAMES = Object.keys(FILTERINGS) as readonly (keyof Filterings)[];

/** The deliveries of the account, which is the parameter `$first`, that fit. */
export function fittingCondition(accountId: string, filter: DeliveryFilter, first: number): Condition {
  return joined(filteringsOf(filter), first, accountId);
}

/**
 * The same for a page, in two parts: what an index answers, in the order of the ids, and what is looked up in each row.
 * Where a replay is asked for its items are that index, `replay_items as i`, and answer nothing else. What a user does
 * not see is looked up, too, and so bounded by the rows that are looked at. An index that leads by spaces would cost
 * each delivery two entries: for all that is of no space, when it is published and when it is delivered.
 */
export function pageConditions(
  reader: Reader,
  filter: DeliveryFilter,
  first: number,
): { readonly indexed: Condition; readonly row: Condition } {
  const { replayId } = filter;
  const all = filteringsOf({ ...filter, replayId: null });
  const isIndexed = ({ by }: Filtering) => replayId === null && by === "index";
  const byIndexes = replayId === null ? all.filter(isIndexed) : [BY_ITEMS(replayId)];
  const indexed = joined(byIndexes, first, reader.accountId);
  const firstOfRow = first + indexed.values.length;
  const byRows = all.filter((filtering) => !isIndexed(filtering));
  const row = joined(byRows, firstOfRow, null, `$${first}`);
  const seen = sightOf(reader, "d", firstOfRow + row.values.length);
  return { indexed, row: { text: `${row.text}${seen.and}`, values: [...row.values, ...seen.values] } };
}

/** @param accountId the first parameter; null: `account` is a parameter already */
function joined(
  filterings: readonly Filtering[],
  first: number,
  accountId: string | null,
  account = `$${first}`,
): Condition {
  const texts = accountId === null ? [] : [`d.account_id = ${account}`];
  const values: unknown[] = accountId === null ? [] : [accountId];
  for (const { text, value } of filterings) {
    texts.push(text(`$${first + values.length}`, account));
    if (value !== undefined) values.push(value);
  }
  return { text: texts.join(" and ") || "true", values };
}

function filteringsOf(filter: DeliveryFilter): readonly Filtering[] {
  const statuses = fittingStatuses(filter);
  return [
    ...NAMES.flatMap((name) => filteringOf(filter, name)),
    ...(statuses === null ? [] : [filteringOfStatuses(statuses)]),
  ];
}

/** None when it was not asked for. */
function filteringOf<Name extends keyof Filterings>(
  filter: DeliveryFilter,
  name: Name,
): readonly Filtering[] {
  const value = filter[name];
  return value === null ? [] : [FILTERINGS[name](value)];
}

function filteringOfStatuses(statuses: readonly DeliveryStatus[]): Filtering {
  if (!statuses.every(isReplayable)) return byRow((asked) => `d.status = any (${asked}::text[])`)(statuses);
  const [status] = statuses;
  if (status === undefined) return byIndex(() => "false")(undefined);
  if (statuses.length > 1) return byIndex(() => IS_REPLAYABLE)(undefined);
  return byIndex((asked) => `d.status = ${asked} and ${IS_REPLAYABLE}`)(status);
}
