import { setTimeout as delay } from "node:timers/promises";
import { deleteRows } from "../store/move-deletion.ts";
import { unparkAll } from "../store/move-stilling.ts";
import { type AccountTable, ARRIVED_TABLES, LEFT_TABLES } from "../store/move-tables.ts";
import { advanceMove, deleteMove, findMove, setMovedTo } from "../store/moves.ts";
import { inTransaction } from "../store/transaction.ts";
import { requireItsTarget } from "./beginning.ts";
import type { Cell, Move } from "./move.ts";
import { MoveRefusedError } from "./move-refused-error.ts";

/**
 * Undoes a move that is not over: what was copied goes, and the source takes everything again. The target forgets the
 * move first, so that whoever is still copying cannot open the account there.
 */
export async function callOffMove(move: Pick<Move, "accountId" | "source" | "target">): Promise<void> {
  const { accountId, source, target } = move;
  const out = await findMove(source.pool, accountId);
  if (out?.direction !== "out" || (out.step !== "begun" && out.step !== "still")) {
    throw new MoveRefusedError(`No move of account ${accountId} goes on that could be called off.`);
  }
  await requireItsTarget(move, out);
  const isOpen = await inTransaction(target.pool, async (tx) => {
    await deleteMove(tx, accountId, out.id, "begun");
    return (await findMove(tx, accountId))?.id === out.id;
  });
  if (isOpen) {
    throw new MoveRefusedError(
      `Account ${accountId} is open at the target already: run the move again, which ends it, and move it back.`,
    );
  }
  await deleteAll(target, ARRIVED_TABLES, accountId);
  await inTransaction(source.pool, async (tx) => {
    // First: whoever still parks or closes has ended then, and does not begin again.
    await deleteMove(tx, accountId, out.id, out.step);
    await unparkAll(tx, accountId);
    await setMovedTo(tx, accountId, null);
  });
}

/**
 * Deletes what the source has left of an account that is open elsewhere, but for what tells callers where. Returns how
 * many rows, children not counted.
 */
export async function deleteMoved(source: Cell, accountId: string): Promise<number> {
  const out = await findMove(source.pool, accountId);
  if (out?.direction !== "out" || out.step === "begun" || out.step === "still") {
    throw new MoveRefusedError(
      `Account ${accountId} has not been moved away from here: \`sealpost account move\` does that, to its end.`,
    );
  }
  await advanceMove(source.pool, accountId, out.id, "done", "deleting");
  const deleted = await deleteAll(source, LEFT_TABLES, accountId);
  await advanceMove(source.pool, accountId, out.id, "deleting", "deleted");
  return deleted;
}

/** Rests after each page for as long as it took. */
async function deleteAll(
  { pool }: Cell,
  tables: readonly AccountTable[],
  accountId: string,
): Promise<number> {
  let deleted = 0;
  for (const table of tables) {
    for (let gone = 1; gone > 0; deleted += gone) {
      const startedAtMs = performance.now();
      gone = await inTransaction(pool, (tx) => deleteRows(tx, table, accountId));
      await delay(performance.now() - startedAtMs);
    }
  }
  return deleted;
}
