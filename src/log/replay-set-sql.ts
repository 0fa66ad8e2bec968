import type { ClientBase, Pool } from "pg";
import type { Reader } from "../base/model/reader.ts";
import { REPLAYABLE_STATUSES } from "../base/model/statuses.ts";
import { type DeliveryFilter, listOf } from "./delivery-filter-api.ts";
import { fittingCondition, IS_REPLAYABLE, pageConditions } from "./delivery-filter-sql.ts";
import { newestOf } from "./delivery-pages-sql.ts";

/** Deliveries that one replay takes at most; whoever wants more narrows the filter to days. */
export const REPLAY_DELIVERIES_MAX = 100_000;

/** One more tells of more. For a user no more are looked at either, with those that the user does not see. */
const ROWS_MAX = REPLAY_DELIVERIES_MAX + 1;

/** `count`: of what the text selects; of too many too many were looked at. */
type Selection = { readonly text: string; readonly count: string };

/** Failed and abandoned deliveries whose analysis is still kept; the parameters go into `values`. */
export function replayable(
  values: unknown[],
  reader: Reader,
  filter: DeliveryFilter,
  analysisRetentionMs: number,
): Selection {
  const age = `d.id >= ${oldestKept(values, analysisRetentionMs)}`;
  const { text, count } = undelivered(values, reader, filter, age);
  return { text: `select d.id, d.webhook_url, d.space_id from ${text}\n    order by d.id`, count };
}

/** Failed and abandoned deliveries, `d`, whose id is of this age: what follows `from`. */
function undelivered(values: unknown[], reader: Reader, filter: DeliveryFilter, age: string): Selection {
  const condition = `${IS_REPLAYABLE} and ${age} and d.reason is distinct from 'analysis_erased'`;
  if (reader.spaceIds === null) {
    const fitting = fittingCondition(values, reader.accountId, filter);
    return { text: `sealpost.deliveries d\n    where ${fitting} and ${condition}`, count: "count(*)" };
  }
  const status = REPLAYABLE_STATUSES.filter(
    (one) => filter.status == null || listOf(filter.status).includes(one),
  );
  const { indexed, row } = pageConditions(values, reader, { ...filter, status });
  const looked = (columns: "d.*" | "d.id") =>
    newestOf({ ...filter, status }).select(`${indexed} and ${condition}`, ROWS_MAX, columns);
  return {
    text: `(${looked("d.*")}) as d where ${row}`,
    count: `(case when (select count(*) from (${looked("d.id")}) as looked) = ${ROWS_MAX}
      then ${ROWS_MAX} else count(*) end)`,
  };
}

const oldestKept = (values: unknown[], analysisRetentionMs: number) =>
  `sealpost.uuid_v7_floor(now() - $${values.push(analysisRetentionMs)}::float8 * interval '1 millisecond')`;

/**
 * Failed and abandoned deliveries that a replay with this filter would take, but for those whose analysis is not kept
 * any more; exact up to the maximum and one more, which is also the count where a user's replay looks at too many.
 */
export async function countReplayable(
  database: Pool | ClientBase,
  reader: Reader,
  filter: DeliveryFilter,
  analysisRetentionMs: number,
): Promise<number> {
  const values: unknown[] = [];
  const set = replayable(values, reader, filter, analysisRetentionMs);
  const { rows } = await database.query<{ n: number }>(
    `select ${set.count}::integer as n from (${set.text} limit ${ROWS_MAX}) as set`,
    values,
  );
  return rows[0]!.n;
}

/** As a dry run answers; each count is as that of `countReplayable`, but for the expired that a user sees. */
type ReplayPreview = { readonly matched: number; readonly own_url: number; readonly expired: number };

export async function previewReplay(
  database: Pool | ClientBase,
  reader: Reader,
  filter: DeliveryFilter,
  analysisRetentionMs: number,
): Promise<ReplayPreview> {
  const values: unknown[] = [];
  const set = replayable(values, reader, filter, analysisRetentionMs);
  const past = undelivered(values, reader, filter, `d.id < ${oldestKept(values, analysisRetentionMs)}`);
  const { rows } = await database.query<ReplayPreview>(
    `select matched, own_url, expired
     from (
       select ${set.count}::integer as matched, count(webhook_url)::integer as own_url
       from (${set.text} limit ${ROWS_MAX}) as set
     ) as kept, (
       select count(*)::integer as expired
       from (
         select from ${past.text}
         limit ${ROWS_MAX}
       ) as past
     ) as gone`,
    values,
  );
  return rows[0]!;
}
