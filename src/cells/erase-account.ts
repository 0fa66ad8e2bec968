import { setTimeout as delay } from "node:timers/promises";
import type { ClientBase, Pool } from "pg";
import pg from "pg";
import { deleteAll } from "../base/database/account-rows.ts";
import { writeAuditEntry } from "../base/database/audit-log.ts";
import { inTransaction, isTransactionConflict } from "../base/database/transaction.ts";
import { ACCOUNT_ERASED, COMMAND_LINE } from "../base/model/audit.ts";
import { beginErasure, completeArrival, ERASED_NAME, endErasure, lockErasable } from "./erasures-sql.ts";
import { ERASED_TABLES, WAITING_TABLES } from "./move-tables-sql.ts";
import { findMove } from "./moves-sql.ts";
import { untilTransactionsEnd, type Waiting } from "./waiting.ts";

export type Erasure = Pick<Waiting, "waitMaxMs" | "tooLong"> & {
  readonly pool: Pool;
  readonly accountId: string;
  /** What the account must be called; null: whatever it is. */
  readonly name: string | null;
  /** Deletes what areas have of it: how much there was, and how many objects are looked for once more. */
  readonly eraseFromAreas: (
    onPage: (what: string) => void,
  ) => Promise<{ readonly gone: number; readonly left: number }>;
  /** Told before each part, and after each page of a table. */
  readonly onProgress: (line: string) => void;
};

export type Erased =
  | {
      readonly outcome: "erased";
      readonly erasedAt: Date;
      readonly objectsLeft: number;
      /** Cells that may still have what it had there; empty: it was always here. */
      readonly cameFrom: readonly string[];
    }
  /** Nothing was done. `moving`: a move is not over; `left`: what it has left is not deleted; `moved`: it is. */
  | { readonly outcome: "unknown" | "other_name" | "arriving" | "moving" | "left" | "moved" };

/**
 * Erases an account for good. At first it is closed, so that nothing is published to it, read of it or begun for it any
 * more. Then goes what makes attempts: whoever is at one finds its row gone. When nothing can bring such rows back any
 * more, all else goes. Each step can be cut off anywhere and run again.
 */
export async function eraseAccount(erasure: Erasure): Promise<Erased> {
  const { pool, accountId, waitMaxMs, tooLong, onProgress } = erasure;
  const closed = await inTransaction(pool, (tx) => closeAccount(tx, erasure));
  if (closed.outcome !== "closed") return closed;
  onProgress("closed the account: its keys have ended, and publishing to it stores nothing");
  const { erasedAt, cameFrom, isDone } = closed;
  const onPage = (what: string) => onProgress(`deleting: ${what}`);
  const onWait = (whom: string | null) =>
    onProgress(`waiting for older transactions to end${whom === null ? "" : `: ${whom}`}`);
  const untilOthersEnd = () => untilTransactionsEnd(pool, { waitMaxMs, tooLong, onWait });
  let objectsLeft = 0;
  const deleteWaiting = () => persist(() => deleteAll(pool, WAITING_TABLES, accountId, onPage));
  const deleteRest = () =>
    persist(async () => {
      const { gone, left } = await erasure.eraseFromAreas(onPage);
      objectsLeft = left;
      return gone + (await deleteAll(pool, ERASED_TABLES, accountId, onPage));
    });

  const found = await deleteWaiting();
  if (isDone && found + (await deleteRest()) === 0)
    return { outcome: "erased", erasedAt, objectsLeft, cameFrom };
  // What begins after a look that finds nothing can only come from what is still there, and nothing is.
  do await untilOthersEnd();
  while ((await deleteWaiting()) > 0);
  for (;;) {
    const gone = await deleteRest();
    await untilOthersEnd();
    if (gone === 0) break;
  }
  await endErasure(pool, accountId);
  return { outcome: "erased", erasedAt, objectsLeft, cameFrom };
}

type Closed =
  | {
      readonly outcome: "closed";
      readonly erasedAt: Date;
      readonly cameFrom: readonly string[];
      readonly isDone: boolean;
    }
  | Exclude<Erased, { readonly outcome: "erased" }>;

async function closeAccount(tx: ClientBase, { accountId, name }: Erasure): Promise<Closed> {
  // Known as erased, before a restore to when it was on its way here; its name was not here yet.
  if (name === null) await completeArrival(tx, accountId);
  const account = await lockErasable(tx, accountId);
  if (account === null) return { outcome: (await findMove(tx, accountId)) === null ? "unknown" : "arriving" };
  const { erasedAt, cameFrom } = account;
  const isDone = erasedAt !== null && account.name === ERASED_NAME;
  if (name !== null && name !== account.name && !isDone) return { outcome: "other_name" };
  if (erasedAt !== null) return { outcome: "closed", erasedAt, cameFrom, isDone };
  const move = await findMove(tx, accountId);
  if (move?.direction === "out" && move.step !== "deleted")
    return { outcome: ["done", "deleting"].includes(move.step) ? "left" : "moving" };
  if (account.movedTo !== null) return { outcome: "moved" };
  const entry = { actor: COMMAND_LINE, requestId: null, operationKey: ACCOUNT_ERASED, details: {} };
  await writeAuditEntry(tx, { accountId, ...entry });
  return { outcome: "closed", erasedAt: await beginErasure(tx, accountId), cameFrom, isDone: false };
}

const TRIES_MAX = 50;
const TRY_AGAIN_MS = 200;
/** SQLSTATE: a row refers to what was to be deleted, written by whoever was at it when the account was closed. */
const STILL_REFERRED_TO = "23503";

/** Tries again what somebody else was in the way of. Returns more than 0 if it did anything. */
async function persist(step: () => Promise<number>): Promise<number> {
  for (let tries = 1; ; tries++) {
    try {
      // What it did before it failed it does not know any more.
      return (await step()) + (tries - 1);
    } catch (error) {
      const isInTheWay =
        isTransactionConflict(error) ||
        (error instanceof pg.DatabaseError && error.code === STILL_REFERRED_TO);
      if (!isInTheWay || tries === TRIES_MAX) throw error;
      await delay(TRY_AGAIN_MS);
    }
  }
}
