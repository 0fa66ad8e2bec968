import type { ClientBase, Pool } from "pg";
import { notErased } from "../base/database/account-rows.ts";
import { inTransaction } from "../base/database/transaction.ts";

/** In `came_from`; no cell is called so. */
export const UNNAMED_CELL = "(unnamed)";

/** What an account is called of which nothing is left; the table wants a name. */
export const ERASED_NAME = "erased";

const NO_ACCOUNT = "00000000-0000-0000-0000-000000000000";

export type ErasableAccount = {
  readonly name: string;
  readonly movedTo: string | null;
  /** Null: not erased. */
  readonly erasedAt: Date | null;
  /** Cells that may still have what it had there; empty: it was always here. */
  readonly cameFrom: readonly string[];
};

/** Held for the transaction, if it is in one: nobody else moves or erases it meanwhile. Null: there is none. */
export async function lockErasable(
  database: ClientBase | Pool,
  accountId: string,
): Promise<ErasableAccount | null> {
  const { rows } = await database.query<ErasableAccount>(
    `select name, moved_to as "movedTo", erased_at as "erasedAt", came_from as "cameFrom" from sealpost.accounts
     where id = $1 for no key update`,
    [accountId],
  );
  return rows[0] ?? null;
}

/** If a move to here is not over, what it has brought so far is taken for the whole account, which can be erased. */
export async function completeArrival(tx: ClientBase, accountId: string): Promise<void> {
  await tx.query(
    `with ended as (
       update sealpost.moves set step = 'done', ended_at = now()
       where account_id = $1 and direction = 'in' and step <> 'done' returning other_cell
     )
     insert into sealpost.accounts as a (id, name, came_from) select $1, $2, array[coalesce(other_cell, $3)] from ended
     on conflict (id) do update set moved_to = null, came_from = a.came_from || excluded.came_from`,
    [accountId, ERASED_NAME, UNNAMED_CELL],
  );
}

/** From the commit on its keys are no good, and publishing to it stores nothing. Returns when that is. */
export async function beginErasure(tx: ClientBase, accountId: string): Promise<Date> {
  const { rows } = await tx.query<{ at: Date }>(
    // One that had that name before would be taken for done.
    `update sealpost.accounts set erased_at = now(), is_full = false,
       name = case name when $2 then $2 || '?' else name end
     where id = $1 returning erased_at as at`,
    [accountId, ERASED_NAME],
  );
  await tx.query("insert into sealpost.erasures (account_id) values ($1) on conflict do nothing", [
    accountId,
  ]);
  for (const table of ["api_keys", "console_sessions"]) {
    await tx.query(
      `update sealpost.${table} set revoked_at = now() where account_id = $1 and revoked_at is null`,
      [accountId],
    );
  }
  return rows[0]!.at;
}

/** Nothing is left of it. */
export async function endErasure(pool: Pool, accountId: string): Promise<void> {
  await pool.query("update sealpost.accounts set name = $2 where id = $1 and erased_at is not null", [
    accountId,
    ERASED_NAME,
  ]);
}

/** `analysis_id` null: the account itself. */
export type StoredErasure = {
  readonly account_id: string;
  readonly analysis_id: string | null;
  readonly erased_at: Date;
};

const ERASURES_PER_PAGE = 10_000;

/**
 * In pages, the oldest first. @param since null: all; with those of the hour before it, as one that takes long has the
 * time when it began
 */
export async function* listErasures(
  pool: Pool,
  since: Date | null,
): AsyncGenerator<readonly StoredErasure[]> {
  let after = [since === null ? "-infinity" : new Date(since.getTime() - 3_600_000), NO_ACCOUNT, ""];
  for (;;) {
    const { rows } = await pool.query<StoredErasure & { readonly place: string }>(
      `select account_id, analysis_id, erased_at, erased_at::text as place from sealpost.erasures
       where (erased_at, account_id, coalesce(analysis_id, '')) > ($1, $2, $3)
       order by erased_at, account_id, coalesce(analysis_id, '') limit ${ERASURES_PER_PAGE}`,
      after,
    );
    yield rows.map(({ place, ...erasure }) => erasure);
    const last = rows.at(-1);
    if (rows.length < ERASURES_PER_PAGE || last === undefined) return;
    after = [last.place, last.account_id, last.analysis_id ?? ""];
  }
}

/** `last` null: there are no more. `asked`: those of them that were erased on request. */
type CopiedPage = {
  readonly last: string | null;
  readonly ids: readonly string[];
  readonly asked: readonly string[];
};

/**
 * Erases at a move's target, perhaps restored, what was erased or forgotten at its source after it was copied, and is
 * still so.
 */
export async function eraseCopied(source: Pool, target: Pool, accountId: string): Promise<void> {
  for (let after: string | null = ""; after !== null; ) {
    const { last, ids, asked }: CopiedPage = await inTransaction(source, async (tx) => {
      // Whatever is known of how many are erased: a page must not read and sort all that the account has.
      await tx.query("set local enable_bitmapscan = off; set local enable_sort = off");
      const { rows } = await tx.query<CopiedPage>(
        `with page as materialized (
           select id, digest from sealpost.analyses where account_id = $1 and id > $2 order by id limit 5000
         ), erased as (
           select id, coalesce((
             select true from sealpost.erasures as e where e.account_id = $1 and e.analysis_id = page.id limit 1
           ), false) as is_asked from page where digest = ''
         )
         select (select id from page order by id desc limit 1) as last,
           array(select id from erased) as ids, array(select id from erased where is_asked) as asked`,
        [accountId, after],
      );
      return rows[0]!;
    });
    if (ids.length > 0) {
      await target.query(
        `with kept as (
           insert into sealpost.erasures (account_id, analysis_id)
           select $1, id from unnest($3::text[]) as asked (id) where ${notErased("$1")} on conflict do nothing
         )
         select sealpost.erase_analysis(account_id, id) from sealpost.analyses
         where account_id = $1 and id = any ($2) and digest <> ''`,
        [accountId, ids, asked],
      );
    }
    after = last;
  }
}
