import type { Reader } from "../base/model/reader.ts";
import {
  DELIVERY_STATUSES,
  type DeliveryStatus,
  isReplayable,
  REPLAYABLE_STATUSES,
} from "../base/model/statuses.ts";
import { sightOf } from "../delivery/visibility-sql.ts";
import { type DeliveryFilter, hostOf, listOf, momentOf } from "./delivery-filter-api.ts";

export function isEverything(filter: DeliveryFilter): boolean {
  return Object.values(filter).every((asked) => asked == null);
}

/**
 * The statuses that can fit, in their usual order; null: all. Only what was abandoned has a reason, so asking for one
 * asks for that status.
 */
export function fittingStatuses({ status, reason }: DeliveryFilter): readonly DeliveryStatus[] | null {
  if (status == null && reason == null) return null;
  const fitting = DELIVERY_STATUSES.filter(
    (one) => (status == null || listOf(status).includes(one)) && (reason == null || one === "abandoned"),
  );
  return fitting.length === DELIVERY_STATUSES.length ? null : fitting;
}

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
  <Asked>(text: Filtering["text"], write: (asked: Asked) => unknown = (asked) => asked) =>
  (asked: Asked): Filtering => ({ by: "index", text, value: write(asked) });
const byRow =
  <Asked>(text: Filtering["text"], write: (asked: Asked) => unknown = (asked) => asked) =>
  (asked: Asked): Filtering => ({ by: "row", text, value: write(asked) });

/** In the order in which the conditions are written. The time of a delivery stands in its id. */
const FILTERINGS: Filterings = {
  created_after: byIndex((asked) => `d.id >= sealpost.uuid_v7_floor(${asked})`, momentOf),
  created_before: byIndex((asked) => `d.id < sealpost.uuid_v7_floor(${asked})`, momentOf),
  analysis_id: byIndex(
    (asked, account) =>
      // By the parameter, not by d.account_id: then it is looked up once, and not for every row.
      `d.id = (select a.delivery_id from sealpost.analyses a where a.account_id = ${account} and a.id = ${asked})`,
  ),
  reason: byRow((asked) => `d.reason = any (${asked}::text[])`, listOf),
  event: byRow((asked) => `d.event = ${asked}`),
  // The first part refuses most rows without the regular expression, which costs ten times as much.
  target_host: byRow((asked) => `strpos(${TARGET}, ${asked}) > 0 and ${TARGET_HOST} = ${asked}`, hostOf),
  error_code: byRow((asked) => `d.last_error_code = ${asked}`),
  status_code: byRow((asked) => `d.last_status_code = ${asked}`),
  status_code_min: byRow((asked) => `d.last_status_code >= ${asked}`),
  status_code_max: byRow((asked) => `d.last_status_code <= ${asked}`),
  replay_id: byRow(
    (asked) =>
      `exists (select from sealpost.replay_items i
        where i.delivery_id = d.id and i.replay_id = ${asked} and i.run = d.run)`,
  ),
};

/** The same by the items of the replay, which are in the order of their deliveries. */
const BY_ITEMS: Filterings["replay_id"] = byIndex(
  (asked) => `i.replay_id = ${asked} and i.outcome = 'replayed'`,
);

const NAMES = Object.keys(FILTERINGS) as readonly (keyof Filterings)[];

/** The deliveries of the account that fit: SQL over `deliveries as d`, whose parameters go into `values`. */
export function fittingCondition(values: unknown[], accountId: string, filter: DeliveryFilter): string {
  const account = `$${values.push(accountId)}`;
  return [`d.account_id = ${account}`, ...textsOf(filteringsOf(filter), values, account)].join(" and ");
}

/**
 * The same for a page, in two parts: what an index answers, in the order of the ids, and what is looked up in each row
 * (null: nothing).
 * Where a replay is asked for its items are that index, `replay_items as i`, and answer nothing else. What a user does
 * not see is looked up, too, and so bounded by the rows that are looked at. An index that leads by spaces would cost
 * each delivery two entries: for all that is of no space, when it is published and when it is delivered.
 */
export function pageConditions(
  values: unknown[],
  reader: Reader,
  filter: DeliveryFilter,
): { readonly indexed: string; readonly row: string | null } {
  const { replay_id: replayId } = filter;
  const all = filteringsOf({ ...filter, replay_id: null });
  const isIndexed = ({ by }: Filtering) => replayId == null && by === "index";
  const byIndexes = replayId == null ? all.filter(isIndexed) : [BY_ITEMS(replayId)];
  const byRows = all.filter((filtering) => !isIndexed(filtering));
  const account = `$${values.push(reader.accountId)}`;
  const indexed = [`d.account_id = ${account}`, ...textsOf(byIndexes, values, account)].join(" and ");
  const row = textsOf(byRows, values, account).join(" and ");
  const seen = sightOf(reader, "d", values.length + 1);
  values.push(...seen.values);
  const looked = `${row || "true"}${seen.and}`;
  return { indexed, row: looked === "true" ? null : looked };
}

function textsOf(filterings: readonly Filtering[], values: unknown[], account: string): readonly string[] {
  return filterings.map(({ text, value }) => {
    if (value === undefined) return text("", account);
    return text(`$${values.push(value)}`, account);
  });
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
  const asked = filter[name];
  return asked == null ? [] : [FILTERINGS[name](asked as NonNullable<DeliveryFilter[Name]>)];
}

function filteringOfStatuses(statuses: readonly DeliveryStatus[]): Filtering {
  if (!statuses.every(isReplayable)) return byRow((asked) => `d.status = any (${asked}::text[])`)(statuses);
  const [status] = statuses;
  if (status === undefined) return byIndex(() => "false")(undefined);
  if (statuses.length > 1) return byIndex(() => IS_REPLAYABLE)(undefined);
  return byIndex((asked) => `d.status = ${asked} and ${IS_REPLAYABLE}`)(status);
}
