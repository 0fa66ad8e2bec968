import type { ClientBase, Pool } from "pg";
import { READ_DOCUMENT, type ReadDocument } from "./documents.ts";
import { accountsBehind } from "./lists.ts";
import { change, rowOf, type SpaceUser, scalarOf } from "./statements.ts";

/** What a rename leaves to do: a space, or one document of it. */
export type StoredMove = {
  readonly accountId: string;
  /** Who asked for it; null: nobody. */
  readonly userId: string | null;
  readonly id: string;
  /** Another one when it was asked for again. */
  readonly asked: number;
  readonly spaceId: string;
  /** Null: all of the space. */
  readonly documentId: string | null;
  /** Documents up to here are done. */
  readonly afterId: string;
  /** Tries since it was asked for in which the document's object could not be had. */
  readonly failures: number;
};

/** After the first failed try; twice as long after each next one, up to the most. */
const RETRY_MS = 30_000;
const RETRY_MS_MAX = 3_600_000;
/** `next_at` after that many failed tries. */
const retryAt = (failures: string) =>
  `now() + least(${RETRY_MS} * 2.0 ^ (least(${failures}, 20) - 1), ${RETRY_MS_MAX}) * interval '1 millisecond'`;

/** Has the objects of a space moved to where its prefix says, or one document's. `documentId`: null, all. */
export const askForMove = change<SpaceUser, [spaceId: string, documentId: string | null]>(
  `insert into workspace.moves (account_id, asked_by, space_id, document_id) values ($1, $2, $3, $4)
   on conflict (account_id, space_id, document_id) do update
   set asked = moves.asked + 1, after_id = excluded.after_id, next_at = excluded.next_at,
     failures = excluded.failures, asked_by = excluded.asked_by`,
);

/**
 * The one that waits longest of the next account behind this one that has any: accounts take turns, however much each
 * has renamed. Nobody else takes it for `leaseMs`. Null: no account behind this one has any.
 */
export const claimMove = rowOf<StoredMove, string, [leaseMs: number]>(
  `with recursive ${accountsBehind("$1::uuid", "workspace.moves")}, due as (
     select move.* from accounts cross join lateral (
       select account_id, id from workspace.moves as m
       where m.account_id = accounts.account_id and m.next_at <= now()
       order by m.next_at limit 1 for update skip locked
     ) as move
     limit 1
   )
   update workspace.moves as m set next_at = now() + $2::float8 * interval '1 millisecond'
   from due where m.account_id = due.account_id and m.id = due.id
   returning m.account_id as "accountId", m.asked_by as "userId", m.id, m.asked, m.space_id as "spaceId",
     m.document_id as "documentId", m.after_id as "afterId", m.failures`,
  "claim_move",
);

/** A document that may have to be moved, and where its space has it. */
type MovedDocument = ReadDocument & { readonly storagePrefix: string };

/** The next documents of a move, but for those in the bin: they are moved when they are restored. */
export async function readMovePage(
  pool: Pool,
  { accountId, spaceId, documentId, afterId }: StoredMove,
  countMax: number,
): Promise<readonly MovedDocument[]> {
  const { rows } = await pool.query<MovedDocument>(
    `select ${READ_DOCUMENT}, (
       select storage_prefix from workspace.spaces where account_id = $1 and id = $2
     ) as "storagePrefix"
     from workspace.documents
     where account_id = $1 and space_id = $2 and ${documentId === null ? "id > $3" : "id = $3"} and bin_id is null
     order by id limit $4`,
    [accountId, spaceId, documentId ?? afterId, countMax],
  );
  return rows;
}

export type KeySwitch = MovedDocument & { readonly newKey: string };

/** Gives documents their new keys, those that still are as they were read. Returns their ids. */
export async function switchKeys(tx: ClientBase, accountId: string, switches: readonly KeySwitch[]) {
  const { rows } = await tx.query<{ id: string }>(
    `update workspace.documents as d set storage_key = s."newKey"
     from json_to_recordset($2)
       as s (id uuid, file_name text, storage_key text, has_content boolean, "newKey" text)
     where d.account_id = $1 and d.id = s.id and d.file_name = s.file_name and d.storage_key = s.storage_key
       and d.has_content = s.has_content
     returning d.id`,
    [accountId, JSON.stringify(switches)],
  );
  return new Set(rows.map(({ id }) => id));
}

/** Nothing happens to one that was asked for again. */
function changeMove<Rest extends unknown[]>(text: string) {
  const changed = change<string, [id: string, asked: number, ...rest: Rest]>(
    `${text} where account_id = $1 and id = $2 and asked = $3`,
  );
  return (tx: ClientBase, { accountId, id, asked }: StoredMove, ...rest: Rest) =>
    changed(tx, accountId, id, asked, ...rest);
}

/** Goes on behind these documents, at once. */
export const continueMove = changeMove<[afterId: string]>(
  "update workspace.moves set after_id = $4, next_at = now()",
);

/** Tries the move of a document again after a while. */
export const postponeMove = changeMove<[]>(
  `update workspace.moves set failures = failures + 1, next_at = ${retryAt("failures + 1")}`,
);

/** All is where it has to be. */
export const endMove = changeMove<[]>("delete from workspace.moves");

/** Has these documents of a space moved by themselves, after a while, if they still exist: it goes on without them. */
export const moveLater = change<string, [id: string, documentIds: readonly string[]]>(
  `insert into workspace.moves (account_id, space_id, document_id, asked_at, asked_by, failures, next_at)
   select m.account_id, m.space_id, d.id, asked_at, asked_by, 1, ${retryAt("1")}
   from workspace.moves as m
   join workspace.documents as d on d.account_id = m.account_id and d.id = any ($3::uuid[])
   where m.account_id = $1 and m.id = $2
   on conflict (account_id, space_id, document_id) do nothing`,
);

/** Seconds since the oldest of what waits was asked for; 0: nothing waits. */
export const readOldestMove = scalarOf<number>(
  "select coalesce(extract(epoch from now() - min(asked_at)), 0)::float8 from workspace.moves",
);
