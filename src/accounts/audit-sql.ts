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
  /** Leaves out who opened the console, signed in, or was made to leave. */
  readonly withoutOpenings: boolean;
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

// What is null matches everything, and is gone from the plan: the statement is planned for its values each time.
const ALL = `($1::uuid is null or a.account_id = $1)
  and ($2::timestamptz is null or a.id >= sealpost.uuid_v7_floor($2))
  and ($3::timestamptz is null or a.id < sealpost.uuid_v7_floor($3))`;
const BELOW = `${ALL} and ($4::uuid is null or a.id < $4)`;
const MATCHES = `($5::text is null or a.operation_key = $5) and ($6::text is null or ${ACTOR_KIND} = $6)
  and ($7::uuid is null or a.key_id = $7)
  and (not $9::boolean or a.operation_key not like 'console.%')`;

const newest = (condition: string, columns = "*") =>
  `select ${columns} from sealpost.audit_log a where ${condition} order by a.id desc`;

const PAGE = `
with counted as (
  select count(*)::integer as looked_at, (count(*) filter (where ${MATCHES}))::integer as matches
  from (${newest(ALL)} limit ${LOOKED_AT_MAX}) as a
), page as (
  select a.* from (${newest(BELOW)} limit ${LOOKED_AT_MAX}) as a where ${MATCHES} order by a.id desc limit $8
)
select looked_at, matches,
  (select coalesce(json_agg(${ENTRY} order by a.id desc), '[]') from page as a) as entries,
  case when (select count(*) from page) < $8
    then (${newest(BELOW, "a.id")} offset ${TOTAL_MAX} limit 1) end as looked_at_to
from counted`;

type PageRow = {
  looked_at: number;
  matches: number;
  entries: readonly AccountAuditEntry[];
  looked_at_to: string | null;
};

/**
 * A page of the audit log, newest first, in one statement. A filter by operation or actor, or without openings, looks
 * at 10,000 rows at most: the page may then hold fewer than `limit` and still have a next one.
 *
 * @param belowId the page's cursor: only older entries; null: from the newest
 */
export async function listAuditEntries(
  database: Pool | ClientBase,
  { accountId, operationKey, actor, createdAfter, createdBefore, withoutOpenings }: AuditFilter,
  belowId: string | null,
  limit: number,
): Promise<CappedPage<AccountAuditEntry>> {
  const ofActor = ACTOR_KINDS.some((kind) => kind === actor) ? [actor, null] : [null, actor];
  const values = [
    accountId,
    createdAfter,
    createdBefore,
    belowId,
    operationKey,
    ...ofActor,
    limit + 1,
    withoutOpenings,
  ];
  const { rows } = await database.query<PageRow>(PAGE, values);
  const { looked_at, matches, entries, looked_at_to } = rows[0]!;
  const { items, next } = cutPage(entries, limit, ({ id }) => id);
  return {
    items,
    next: next ?? looked_at_to,
    total: Math.min(matches, TOTAL_MAX),
    isTotalCapped: looked_at > TOTAL_MAX,
  };
}
