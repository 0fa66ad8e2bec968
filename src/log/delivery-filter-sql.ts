import { idFloor } from "../base/database/partitions.ts";
import { NO_SPACES, type Reader } from "../base/model/reader.ts";
import {
  DELIVERY_STATUSES,
  type DeliveryStatus,
  isReplayable,
  REPLAYABLE_STATUSES,
} from "../base/model/statuses.ts";
import { sightOf } from "../delivery/visibility-sql.ts";
import { type DeliveryFilter, hostOf as hostAsWritten, listOf, momentOf } from "./delivery-filter-api.ts";

export function isEverything(filter: PageFilter): boolean {
  return Object.values(filter).every((asked) => asked == null);
}

/** Those that can fit, in their usual order; null: all. Only what was abandoned has a reason. */
function fittingStatuses({ status, reason }: DeliveryFilter): readonly DeliveryStatus[] | null {
  if (status == null && reason == null) return null;
  const fitting = DELIVERY_STATUSES.filter(
    (one) => (status == null || listOf(status).includes(one)) && (reason == null || one === "abandoned"),
  );
  return fitting.length === DELIVERY_STATUSES.length ? null : fitting;
}

// Hosts are ASCII here, and by the rules of a language lower() takes two to three times as long.
const inLowerCase = (url: string) => `lower(${url} collate "C")`;
/** Without its port. @param url SQL */
export const hostOf = (url: string) => `substring(${inLowerCase(url)} from '^[^:]*://(\\[[^]]*\\]|[^/?:]*)')`;
const TARGET_URL = "coalesce(d.webhook_url, d.endpoint_url)";
const TARGET = inLowerCase(TARGET_URL);
/** Null for a delivery without a target. */
export const TARGET_HOST = hostOf(TARGET_URL);

/** Written out, so that the planner sees that the partial index covers it. */
export const IS_REPLAYABLE = `d.status in (${REPLAYABLE_STATUSES.map((status) => `'${status}'`).join(", ")})`;

/** A part of a filter. */
type Filtering<Asked> = {
  /** Of the parameter: one that is null has none by itself. */
  readonly type: "text" | "text[]" | "integer" | "uuid" | "uuid[]";
  /** `asked` and `account` are parameters. */
  readonly text: (asked: string, account: string) => string;
  /** Absent: as it was asked. */
  readonly write?: (asked: Asked) => unknown;
  /** Fits all, where nothing was asked for; absent: null. */
  readonly all?: string;
};

/** What a page may be asked for besides; see delivery-pages-sql.ts. */
export type PageFilter = DeliveryFilter & {
  /** Of these ids. */
  readonly found?: readonly string[] | null | undefined;
  /** To hosts that begin with this. */
  readonly host_begin?: string | null;
  /** Whose analyses' ids begin with this. */
  readonly analysis_begin?: string | null;
};

type Filterings = {
  readonly [Name in keyof PageFilter]-?: Filtering<NonNullable<PageFilter[Name]>>;
};

const idOf = (first: string) => `${first}-0000-0000-8000-000000000000`;
const floorOf = (asked: string) => idFloor(momentOf(asked).getTime());

/** In the order in which the conditions are written. The time of a delivery stands in its id. */
const FILTERINGS: Filterings = {
  created_after: { type: "uuid", text: (asked) => `d.id >= ${asked}`, write: floorOf, all: idOf("00000000") },
  created_before: { type: "uuid", text: (asked) => `d.id < ${asked}`, write: floorOf, all: idOf("ffffffff") },
  analysis_id: {
    type: "text",
    text: (asked, account) =>
      // By the parameter, not by d.account_id: then it is looked up once, and not for every row.
      `d.id = (select a.delivery_id from sealpost.analyses a where a.account_id = ${account} and a.id = ${asked})`,
  },
  reason: { type: "text[]", text: (asked) => `d.reason = any (${asked})`, write: listOf },
  event: { type: "text", text: (asked) => `d.event = ${asked}` },
  target_host: {
    type: "text",
    // The first part refuses most rows without the regular expression, which costs ten times as much.
    text: (asked) => `strpos(${TARGET}, ${asked}) > 0 and ${TARGET_HOST} = ${asked}`,
    write: hostAsWritten,
  },
  host_begin: {
    type: "text",
    text: (asked) => `strpos(${TARGET}, '://' || ${asked}) > 0 and starts_with(${TARGET_HOST}, ${asked})`,
    write: (asked) => asked.toLowerCase(),
  },
  analysis_begin: { type: "text", text: (asked) => `starts_with(d.analysis_id, ${asked})` },
  found: { type: "uuid[]", text: (asked) => `d.id = any (${asked})` },
  error_code: { type: "text", text: (asked) => `d.last_error_code = ${asked}` },
  status_code: { type: "integer", text: (asked) => `d.last_status_code = ${asked}` },
  status_code_min: { type: "integer", text: (asked) => `d.last_status_code >= ${asked}` },
  status_code_max: { type: "integer", text: (asked) => `d.last_status_code <= ${asked}` },
  replay_id: {
    type: "uuid",
    text: (asked) =>
      `exists (select from sealpost.replay_items i
        where i.delivery_id = d.id and i.replay_id = ${asked} and i.run = d.run)`,
  },
  status: { type: "text[]", text: (asked) => `d.status = any (${asked})`, write: listOf },
};

const NAMES = Object.keys(FILTERINGS) as readonly (keyof Filterings)[];

/** The same filter, with the statuses that can fit. */
const fittingOf = (filter: PageFilter): PageFilter => ({
  ...filter,
  status: fittingStatuses(filter),
});

/** Its parameter goes into `values`. */
function textOf<Name extends keyof Filterings>(
  values: unknown[],
  account: string,
  filter: PageFilter,
  name: Name,
): string {
  const { type, text, write = (asked: unknown) => asked, all }: Filtering<never> = FILTERINGS[name];
  const asked = filter[name];
  return text(`$${values.push(asked == null ? (all ?? null) : write(asked as never))}::${type}`, account);
}

/** The deliveries of the account that fit: SQL over `deliveries as d`, whose parameters go into `values`. */
export function fittingCondition(values: unknown[], accountId: string, filter: DeliveryFilter): string {
  const account = `$${values.push(accountId)}`;
  const fitting = fittingOf(filter);
  const asked = NAMES.filter((name) => fitting[name] != null);
  const texts = asked.map((name) => textOf(values, account, fitting, name));
  return [`d.account_id = ${account}`, ...texts].join(" and ");
}

/** What leads a page along an index. */
export type Lead = "log" | "status" | "undelivered" | "analysis" | "replay" | "found";

export function leadOf(filter: PageFilter): Lead {
  if (filter.found != null) return "found";
  if (filter.replay_id != null) return "replay";
  if (filter.analysis_id != null) return "analysis";
  const statuses = fittingStatuses(filter);
  if (statuses === null || !statuses.every(isReplayable)) return "log";
  return statuses.length > 1 ? "undelivered" : "status";
}

/** What the index of each lead answers besides the account. */
const INDEXED: Readonly<Record<Lead, readonly (keyof Filterings)[]>> = {
  log: ["created_after", "created_before"],
  status: ["created_after", "created_before", "status"],
  undelivered: ["created_after", "created_before", "status"],
  analysis: ["analysis_id"],
  replay: ["replay_id"],
  found: ["found"],
};

/**
 * The same for a page, in two parts: what an index answers, in the order of the ids, and what is looked up in each row
 * (null: nothing).
 * Where a replay is asked for its items are that index, `replay_items as i`, and answer nothing else. What a user does
 * not see is looked up, too, and so bounded by the rows that are looked at. An index that leads by spaces would cost
 * each delivery two entries: for all that is of no space, when it is published and when it is delivered.
 *
 * What is not asked for is said, too, with values that all fit: each lead has one text of either part, whatever is
 * asked. Each text is a prepared statement, and a plan for 46 days takes one to two megabytes of every connection.
 */
export function pageConditions(
  values: unknown[],
  reader: Reader,
  filter: PageFilter,
): { readonly indexed: string; readonly row: string | null } {
  const lead = leadOf(filter);
  const account = `$${values.push(reader.accountId)}`;
  const fitting = fittingOf(filter);
  const byIndex = INDEXED[lead].map((name) => {
    if (name === "replay_id")
      return `i.replay_id = $${values.push(fitting.replay_id)} and i.outcome = 'replayed'`;
    if (name !== "status") return textOf(values, account, fitting, name);
    if (lead === "undelivered") return IS_REPLAYABLE;
    // Where no status can fit, none is empty.
    return `d.status = $${values.push(fitting.status?.[0] ?? "")} and ${IS_REPLAYABLE}`;
  });
  const indexed = [`d.account_id = ${account}`, ...byIndex].join(" and ");
  const looked = NAMES.filter(
    (name) => !INDEXED[lead].includes(name) && (name !== "replay_id" || lead === "found") && name !== "found",
  );
  const isAll = reader.spaceIds === null && looked.every((name) => fitting[name] == null);
  const isAlone = lead === "analysis" || lead === "replay" || lead === "found";
  if (isAll && !isAlone) return { indexed, row: null };
  const byRow = looked.map((name) => {
    const text = textOf(values, account, fitting, name);
    return `($${values.length}::${FILTERINGS[name].type} is null or ${text})`;
  });
  const seesAll = `$${values.push(reader.spaceIds === null)}::boolean`;
  const spaceIds = reader.spaceIds ?? NO_SPACES;
  const seen = sightOf({ ...reader, spaceIds }, "d", values.push(spaceIds));
  return { indexed, row: [...byRow, `(${seesAll} or true${seen.and})`].join(" and ") };
}
