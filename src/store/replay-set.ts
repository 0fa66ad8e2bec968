import type { ClientBase, Pool } from "pg";
import { type DeliveryFilter, fittingCondition, IS_REPLAYABLE } from "./delivery-filter.ts";

/** Deliveries that one replay takes at most; whoever wants more narrows the filter to days. */
export const REPLAY_DELIVERIES_MAX = 100_000;

/** A statement's text and parameters. */
type Selection = { readonly text: string; readonly values: readonly unknown[] };

/** Failed and abandoned deliveries whose analysis is still kept; the parameters begin with `$first`. */
export function replayable(
  accountId: string,
  filter: DeliveryFilter,
  analysisRetentionMs: number,
  first: number,
): Selection {
  const fitting = fittingCondition(accountId, filter, first + 1);
  const text = `select d.id, d.webhook_url from sealpost.deliveries d
    where ${fitting.text} and ${IS_REPLAYABLE} and d.id >= ${oldestKept(first)}
    order by d.id`;
  return { text, values: [analysisRetentionMs, ...fitting.values] };
}

const oldestKept = (first: number) =>
  `sealpost.uuid_v7_floor(now() - $${first}::float8 * interval '1 millisecond')`;

/**
 * Failed and abandoned deliveries that a replay with this filter would take, but for those whose analysis is not kept
 * any more; exact up to the maximum and one more.
 */
export async function countReplayable(
  database: Pool | ClientBase,
  accountId: string,
  filter: DeliveryFilter,
  analysisRetentionMs: number,
): Promise<number> {
  const set = replayable(accountId, filter, analysisRetentionMs, 1);
  const { rows } = await database.query<{ n: number }>(
    `select count(*)::integer as n from (${set.text} limit ${REPLAY_DELIVERIES_MAX + 1}) as set`,
    [...set.values],
  );
  return rows[0]!.n;
}

/** What a replay would do; each count is exact up to the maximum and one more. */
export type ReplayPreview = {
  readonly matched: number;
  /** Of the matched, those that were published with a URL of their own: changing the endpoint does not move them. */
  readonly ownUrl: number;
  /** Those that fit the filter, too, but whose analysis is not kept any more. */
  readonly expired: number;
};

export async function previewReplay(
  database: Pool | ClientBase,
  accountId: string,
  filter: DeliveryFilter,
  analysisRetentionMs: number,
): Promise<ReplayPreview> {
  const set = replayable(accountId, filter, analysisRetentionMs, 1);
  const fitting = fittingCondition(accountId, filter, 2);
  const { rows } = await database.query<ReplayPreview>(
    `select matched, "ownUrl", expired
     from (
       select count(*)::integer as matched, count(webhook_url)::integer as "ownUrl"
       from (${set.text} limit ${REPLAY_DELIVERIES_MAX + 1}) as set
     ) as kept, (
       select count(*)::integer as expired
       from (
         select from sealpost.deliveries d
         where ${fitting.text} and ${IS_REPLAYABLE} and d.id < ${oldestKept(1)}
         limit ${REPLAY_DELIVERIES_MAX + 1}
       ) as past
     ) as gone`,
    [...set.values],
  );
  return rows[0]!;
}
