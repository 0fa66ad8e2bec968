import type { ClientBase, Pool } from "pg";
import { timeText } from "../base/database/time-text.ts";
import { ACTOR_KINDS } from "../base/model/audit.ts";
import { type CappedPage, cutPage, LOOKED_AT_MAX, TOTAL_MAX } from "../base/model/list-page.ts";
import type { AccountAuditEntry } from "./accounts-schema.ts";

/** What an entry has to match; null matches everything. */
export type AuditFilter = {
  readonly accountId: string | null;
  readonly operationKey: string | null;
  /** A kind of actor, or the id of a key. */
  readonly actor: string | null;
  readonly createdAfter: Date | null;
  readonly createdBefore: Date | null;
};

// Version 1.0 wrote no actor, and only where a key was.
const ACTOR_KIND = `coalesce(a.actor, (
  select case when k.account_id is null then 'staff_key' else 'key' end
  from sealpost.api_keys k where k.id = a.key_id))`;

/** As the API answers. */
const ENTRY = `json_build_object('id', a.id, 'at', ${timeText("sealpost.uuid_v7_time(a.id)")},
  'operation', a.operation_key, 'actor', json_build_object('kind', ${ACTOR_KIND}, 'key_id', a.key_id,
    'name', coalesce(a.actor_name, (select k.name from sealpost.api_keys k where k.id = a.key_id)),
    'user', (select json_build_object('id', u.id, 'name', u.name)
      from sealpost.api_keys k join sealpost.users u on u.id = k.user_id where k.id = a.key_id),
    'viewer', a.viewer),
  'request_id', a.request_id, 'details', coalesce(a.details, '{}'),
  'account', case when a.account_id is not null then json_build_object('id', a.account_id,
    'name', coalesce((select name from sealpost.accounts c where c.id = a.account_id), '')) end)`;

/**
 * A page of the audit log, newest first, in one statement. A filter by operation or actor looks at 10,000 rows at most:
 * the page may then hold fewer than `limit` and still have a next one.
 *
 * @param belowId the page's cursor: only older entries; null: from the newest
 */
export async function listAuditEntries(
  database: Pool | ClientBase,
  filter: AuditFilter,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<AccountAuditEntry>> {
  const values: unknown[] = [];
  const all = conditions(values, [
    [filter.accountId, (value) => `a.account_id = ${value}`],
    [filter.createdAfter, (value) => `a.id >= sealpost.uuid_v7_floor(${value})`],
    [filter.createdBefore, (value) => `a.id < sealpost.uuid_v7_floor(${value})`],
  ]);
  const isKind = ACTOR_KINDS.some((kind) => kind === filter.actor);
  const row = conditions(values, [
    [filter.operationKey, (value) => `a.operation_key = ${value}`],
    [filter.actor, (value) => (isKind ? `${ACTOR_KIND} = ${value}` : `a.key_id = ${value}`)],
  ]);
  const below = `${all} and ${conditions(values, [[belowId, (value) => `a.id < ${value}`]])}`;
  const rowsMax = `$${values.push(limit + 1)}`;
  const { rows } = await database.query<PageRow>(
    `with counted as (
       select count(*)::integer as looked_at, (count(*) filter (where ${row}))::integer as matches
       from (${newest(all)} limit ${LOOKED_AT_MAX}) as a
     ), page as (
       select a.* from (${newest(below)} limit ${LOOKED_AT_MAX}) as a where ${row} order by a.id desc limit ${rowsMax}
     )
     select looked_at, matches,
       (select coalesce(json_agg(${ENTRY} order by a.id desc), '[]') from page as a) as entries,
       case when (select count(*) from page) < ${rowsMax}
         then (${newest(below, "a.id")} offset ${TOTAL_MAX} limit 1) end as looked_at_to
     from counted`,
    values,
  );
  const { looked_at, matches, entries, looked_at_to } = rows[0]!;
  const { items, next } = cutPage(entries, limit, ({ id }) => id);
  return {
    items,
    next: next ?? looked_at_to,
    total: Math.min(matches, TOTAL_MAX),
    isTotalCapped: looked_at > TOTAL_MAX,
  };
}

type PageRow = {
  looked_at: number;
  matches: number;
  entries: readonly AccountAuditEntry[];
  looked_at_to: string | null;
};

const newest = (condition: string, columns = "*") =>
  `select ${columns} from sealpost.audit_log a where ${condition} order by a.id desc`;

/** Those whose value is given, which goes into `values`. */
function conditions(
  values: unknown[],
  wanted: readonly (readonly [unknown, (placeholder: string) => string])[],
): string {
  const texts = wanted.flatMap(([value, text]) => (value === null ? [] : [text(`$${values.push(value)}`)]));
  return texts.length === 0 ? "true" : texts.join(" and ");
}
