import type { ClientBase, Pool } from "pg";
import { emptyDetached } from "../base/database/partitions.ts";
import { inTransaction, UNPRUNED } from "../base/database/transaction.ts";

/** `reapplying`: it was erased before a restore, which may be to when a run had not published it yet. */
type ErasedBy = { readonly userId: string | null } | "reapplying";

/**
 * What runs have of an analysis goes with it; what they have published of it, or have made it of, is returned, to be
 * erased, too. Null, and nothing was done: whoever asks is a user who may not delete it, or an endpoint forgets, and a
 * run that has it goes on. What is erased on request ends such a run.
 */
export type EraseFromRuns = (
  tx: ClientBase,
  accountId: string,
  analysisId: string,
  by: ErasedBy | "forgetting",
) => Promise<readonly string[] | null>;

/**
 * `deliveryId` null: it is a run that has published nothing, or was erased before a restore, to when it was not there
 * yet. `inFlight`: an attempt was under way, which may arrive. `cameFrom`: the cells where the account was before, and
 * may have it still; empty: it was always here. Null: the account has no such analysis.
 */
export type Erased = {
  readonly deliveryId: string | null;
  readonly inFlight: boolean;
  readonly cameFrom: readonly string[];
} | null;

/** With what `EraseFromRuns` returns, even if it is not there itself; `refused`: null. See sealpost.erase_analysis. */
export async function eraseAnalysis(
  tx: ClientBase,
  eraseFromRuns: EraseFromRuns,
  accountId: string,
  analysisId: string,
  by: ErasedBy,
): Promise<Erased | "refused"> {
  const others = await eraseFromRuns(tx, accountId, analysisId, by);
  if (others === null) return "refused";
  // There is a run of this id. What it has not published, or was not given yet, nobody publishes any more.
  if (others.includes(analysisId)) for (const id of others) await knowAsErased(tx, accountId, id);
  // In the log's order, as bulk replays lock them.
  const { rows } = await tx.query<{ id: string; delivery_id: string }>(
    "select id, delivery_id from sealpost.analyses where account_id = $1 and id = any ($2) order by delivery_id",
    [accountId, [analysisId, ...others]],
  );
  let erased: Erased = null;
  let inFlight = false;
  for (const { id } of rows) {
    const one = await eraseOne(tx, accountId, id);
    if (id === analysisId) erased = one;
    inFlight ||= one?.inFlight === true;
  }
  const deliveryIds = rows.map(({ delivery_id }) => delivery_id);
  await emptyDetached(tx, "delivery_id", deliveryIds);
  return erased && { ...erased, inFlight };
}

/**
 * What is not known here (of a run that published nothing, or not yet after a restore) is known as erased from now on,
 * so that nobody publishes it. False: the account is not known either.
 */
export async function knowAsErased(tx: ClientBase, accountId: string, analysisId: string): Promise<boolean> {
  const { rowCount } = await tx.query(
    `with known as (select id from sealpost.accounts where id = $1 and moved_to is null and erased_at is null),
     kept as (
       insert into sealpost.erasures (account_id, analysis_id) select id, $2 from known on conflict do nothing
     )
     insert into sealpost.analyses (account_id, id, delivery_id, digest)
     select id, $2, gen_random_uuid(), '' from known on conflict do nothing`,
    [accountId, analysisId],
  );
  return rowCount === 1;
}

/** That it was asked for is kept, for after a restore. */
async function eraseOne(database: ClientBase, accountId: string, analysisId: string): Promise<Erased> {
  const { rows } = await database.query<NonNullable<Erased>>(
    `with erased as materialized (
       select * from sealpost.erase_analysis($1, $2)
     ), kept as (
       insert into sealpost.erasures (account_id, analysis_id)
       select $1, $2 from erased where its_delivery is not null on conflict do nothing
     )
     select in_flight as "inFlight", (
       select id from sealpost.deliveries where account_id = $1 and id = its_delivery
     ) as "deliveryId", (
       select came_from from sealpost.accounts where id = $1
     ) as "cameFrom" from erased where its_delivery is not null`,
    [accountId, analysisId],
  );
  return rows[0] ?? null;
}

/** Those that were asked for longer ago, with the ids that only they have kept. Returns how many. */
export async function forgetErasures(pool: Pool, keptMs: number): Promise<number> {
  const forget = (tx: ClientBase) =>
    tx.query<{ gone: number }>(
      `with old as (
       delete from sealpost.erasures where ctid = any (array(
         select ctid from sealpost.erasures
         where analysis_id is not null and erased_at < now() - $1::float8 * interval '1 ms' limit 1000))
       returning account_id, analysis_id
     ), unknown as (
       delete from sealpost.analyses as a using old
       where a.account_id = old.account_id and a.id = old.analysis_id and a.digest = '' and not exists (
         select from sealpost.deliveries as d where d.account_id = a.account_id and d.id = a.delivery_id)
     )
     select count(*)::integer as gone from old`,
      [keptMs],
    );
  return (await inTransaction(pool, forget, UNPRUNED)).rows[0]!.gone;
}

/** In one transaction: with one for each, commits took most of the time. */
const FORGOTTEN_PER_STEP = 200;
/** How soon what is not delivered yet is looked at again: so much later than it should be it is erased at most. */
const LOOK_EVERY_MS = 600_000;
/** And what only a replay can deliver, which has it looked at sooner. */
const LOOK_AT_ABANDONED_EVERY_MS = 6 * 3_600_000;

/**
 * SQL: whether what the account `a` has here is forgotten. Not while it is being moved, so that both cells have the
 * same; once it is open elsewhere, what it has left here is.
 */
const IS_FORGOTTEN_HERE = `(a.moved_to is null or exists (
  select from sealpost.moves as m where m.account_id = a.id and m.direction = 'out' and m.step = 'done'))`;

/** `isOver`: it was delivered so long ago, or can never be. */
type Looked = {
  readonly accountId: string;
  readonly deliveryId: string;
  readonly analysisId: string;
  readonly isOver: boolean;
};

type OfAnalysis = Pick<Looked, "accountId" | "analysisId">;

/** The ids of those that may have something in a run: of the others `EraseFromRuns` finds nothing to forget. */
type IdsOfRuns = (database: ClientBase | Pool, those: readonly OfAnalysis[]) => Promise<ReadonlySet<string>>;

/**
 * One step of erasing what was delivered `afterMs` ago to endpoints that forget; accounts have equal shares of it. What
 * a run that has ended has made of it is forgotten as if it were the endpoint's. Returns how many were looked at. What
 * was not delivered is looked at again, for as long as there is a text.
 */
export async function forgetDelivered(
  pool: Pool,
  eraseFromRuns: EraseFromRuns,
  afterMs: number,
  idsOfRuns: IdsOfRuns,
): Promise<number> {
  const look = (tx: ClientBase) =>
    tx.query<Looked>(
      `with recursive accounts as (
       (select account_id from sealpost.forgetting order by account_id limit 1)
       union all
       select next.account_id from accounts cross join lateral (
         select f.account_id from sealpost.forgetting as f
         where f.account_id > accounts.account_id order by f.account_id limit 1
       ) as next
     ), turns as (
       select account_id, greatest(1, ${FORGOTTEN_PER_STEP} / count(*) over ()) as share from accounts
       where exists (
           select from sealpost.forgetting as f where f.account_id = accounts.account_id and f.look_at <= now())
         and exists (
           select from sealpost.accounts as a where a.id = accounts.account_id and ${IS_FORGOTTEN_HERE})
     ), due as (
       select mine.* from turns cross join lateral (
         select f.delivery_id, f.account_id from sealpost.forgetting as f
         where f.account_id = turns.account_id and f.look_at <= now()
         order by f.look_at limit turns.share for update skip locked
       ) as mine
       order by random() limit ${FORGOTTEN_PER_STEP}
     ), looked as (
       select due.*, d.analysis_id, d.status, d.forget_at,
         coalesce(d.forget_at <= now() or d.status = 'abandoned' and not d.is_kept, false) as is_over
       from due left join lateral (
         select d.analysis_id, d.status, (
           select max(a.ended_at) + $1::float8 * interval '1 ms' from sealpost.attempts as a
           where a.delivery_id = d.id and a.outcome = 'succeeded' and d.status = 'succeeded'
         ) as forget_at, exists (select from sealpost.bodies as b where b.delivery_id = d.id) as is_kept
         from sealpost.deliveries as d
         where d.account_id = due.account_id and d.id = due.delivery_id
           and d.reason is distinct from 'analysis_erased'
         limit 1
       ) as d on true
     ), gone as (
       delete from sealpost.forgetting as f using looked
       where f.delivery_id = looked.delivery_id and looked.analysis_id is null
     ), later as (
       update sealpost.forgetting as f
       set look_at = case when forget_at > now() then forget_at
         when status = 'abandoned' then now() + $3::float8 * interval '1 ms'
         else now() + $2::float8 * interval '1 ms' end
       from looked where f.delivery_id = looked.delivery_id and looked.analysis_id is not null
     )
     select account_id as "accountId", delivery_id as "deliveryId", analysis_id as "analysisId", is_over as "isOver"
     from looked order by account_id, delivery_id`,
      [afterMs, LOOK_EVERY_MS, LOOK_AT_ABANDONED_EVERY_MS],
    );
  const { rows } = await inTransaction(pool, look, UNPRUNED);
  const over = rows.filter(({ isOver }) => isOver);
  const ofRuns = await idsOfRuns(pool, over);
  const [together = [], alone = []] = [false, true].map((is) =>
    over.filter(({ analysisId }) => ofRuns.has(analysisId) === is),
  );
  // What fails, each by itself: the others have nothing to do with what is wrong with one. So is what runs have, as a
  // run is locked before what its account has stored.
  await forgetTogether(pool, null, together).catch(() => alone.push(...together));
  const failures: unknown[] = [];
  for (const one of alone)
    await forgetTogether(pool, eraseFromRuns, [one]).catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
  return rows.length;
}

/** All of them, but for those of accounts that close for a move, and of unfinished runs. Null: no run has any. */
async function forgetTogether(
  pool: Pool,
  eraseFromRuns: EraseFromRuns | null,
  those: readonly Looked[],
): Promise<void> {
  if (those.length === 0) return;
  await inTransaction(pool, async (tx) => {
    // Not closed for a move meanwhile; from here on the move waits for this transaction.
    const { rows } = await tx.query<{ id: string }>(
      `select id from sealpost.accounts as a where id = any ($1) and ${IS_FORGOTTEN_HERE}`,
      [[...new Set(those.map(({ accountId }) => accountId))]],
    );
    const here = new Set(rows.map(({ id }) => id));
    const erased: OfAnalysis[] = [];
    const made: OfAnalysis[] = [];
    const done: string[] = [];
    for (const { accountId, analysisId, deliveryId } of those) {
      if (!here.has(accountId)) continue;
      const itsMade = eraseFromRuns && (await eraseFromRuns(tx, accountId, analysisId, "forgetting"));
      if (eraseFromRuns !== null && itsMade === null) continue;
      erased.push({ accountId, analysisId });
      made.push(...(itsMade ?? []).map((id) => ({ accountId, analysisId: id })));
      done.push(deliveryId);
    }
    const columns = (of: readonly OfAnalysis[]) => [
      of.map(({ accountId }) => accountId),
      of.map(({ analysisId }) => analysisId),
    ];
    const given = "unnest($1::uuid[], $2::text[]) as given (account_id, analysis_id)";
    await tx.query(`select sealpost.erase_analysis(account_id, analysis_id) from ${given}`, columns(erased));
    await emptyDetached(tx, "delivery_id", done);
    await tx.query(
      `insert into sealpost.forgetting (delivery_id, account_id, look_at)
       select a.delivery_id, a.account_id, now() from ${given}
       join sealpost.analyses as a on a.account_id = given.account_id and a.id = given.analysis_id
       on conflict do nothing`,
      columns(made),
    );
    await tx.query("delete from sealpost.forgetting where delivery_id = any ($1)", [done]);
  });
}
