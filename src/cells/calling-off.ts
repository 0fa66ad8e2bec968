import type { ClientBase } from "pg";
import { deleteAll } from "../base/database/account-rows.ts";
import { inTransaction } from "../base/database/transaction.ts";
import { requireItsTarget } from "./beginning.ts";
import { lockErasable, UNNAMED_CELL } from "./erasures-sql.ts";
import { type Cell, type Move, MoveRefusedError } from "./move.ts";
import { ARRIVED_TABLES, LEFT_TABLES } from "./move-tables-sql.ts";
import * as moves from "./moves-sql.ts";

type Called = Pick<Move, "accountId" | "source" | "target">;

/**
 * Undoes a move that is not over: the source takes everything again, and what was copied goes. Both moves' rows are
 * held, the source's first, so that whoever is still moving takes no step between the target's word and the reopening.
 * Also deletes what is left at the target of one that was called off without it. False: it was that alone.
 */
export async function callOffMove(move: Called): Promise<boolean> {
  const { accountId, source, target } = move;
  const isCalledOff = await inTransaction(source.pool, async (tx) => {
    const out = await moves.lockMove(tx, accountId);
    if (!goesOn(out)) return false;
    await requireItsTarget(move, out);
    if (!(await forbidOpening(target, accountId, out.id))) {
      throw new MoveRefusedError(
        `Account ${accountId} is already open at the target: run the move again, which completes it, then move it ` +
          "back.",
      );
    }
    await reopen(tx, accountId, out);
    return true;
  });
  const isCleared = await clearTarget(move);
  if (!isCalledOff && !isCleared) throw nothingToCallOff(accountId);
  return isCalledOff;
}

/**
 * The same without the target, which never answers again. Before `opening` nobody can have opened the account there,
 * and whoever is still moving it finds the move gone before he could; so this is safe even if the target comes back.
 */
export async function callOffLostMove({ accountId, source }: Omit<Called, "target">): Promise<void> {
  await inTransaction(source.pool, async (tx) => {
    const out = await moves.lockMove(tx, accountId);
    if (out?.direction !== "out" || out.step === "deleted") throw nothingToCallOff(accountId);
    if (!goesOn(out) || out.step === "opening") {
      throw new MoveRefusedError(
        `Account ${accountId} ${goesOn(out) ? "may be" : "is"} open at the target, in the cell "${out.otherCell}": ` +
          "reopened here, it would send again what was sent there, and lack what was published there. Restore the " +
          "target from its backup, and run the move again, which completes or continues it.",
      );
    }
    await reopen(tx, accountId, out);
    const { cameFrom } = (await lockErasable(tx, accountId))!;
    await moves.arrive(tx, accountId, [...new Set([...cameFrom, out.otherCell ?? UNNAMED_CELL])]);
  });
}

type GoingOn = moves.StoredMove & { readonly direction: "out"; readonly step: "begun" | "still" | "opening" };

/** Whether the account is closed for it, or is about to be, and not known to be open elsewhere. */
function goesOn(move: moves.StoredMove | null): move is GoingOn {
  return move?.direction === "out" && ["begun", "still", "opening"].includes(move.step);
}

function nothingToCallOff(accountId: string): MoveRefusedError {
  return new MoveRefusedError(`Account ${accountId} has no move in progress that could be called off.`);
}

async function reopen(tx: ClientBase, accountId: string, { id }: moves.StoredMove): Promise<void> {
  await moves.deleteMove(tx, accountId, id);
  await moves.unparkAll(tx, accountId);
  await moves.setMovedTo(tx, accountId, null);
}

/** False: the account is open at the target. */
async function forbidOpening({ pool }: Cell, accountId: string, moveId: string): Promise<boolean> {
  return await inTransaction(pool, async (tx) => {
    const into = await moves.lockMove(tx, accountId);
    if (into?.id !== moveId || into.step === "deleting") return true;
    return await moves.advanceMove(tx, accountId, moveId, "begun", "deleting");
  });
}

/** Deletes what a move that was called off has brought to the target. False: there is nothing of one. */
async function clearTarget({ accountId, source, target }: Called): Promise<boolean> {
  const into = await moves.findMove(target.pool, accountId);
  if (into?.direction !== "in") return false;
  if (into.step === "begun") {
    // Called off at its source, this one, while the target was away.
    if (into.otherDatabase !== (await moves.identifyDatabase(source.pool))) return false;
    if ((await moves.findMove(source.pool, accountId))?.id === into.id) return false;
    if (!(await forbidOpening(target, accountId, into.id))) return false;
  } else if (into.step !== "deleting") return false;
  await deleteAll(target.pool, ARRIVED_TABLES, accountId);
  await moves.deleteMove(target.pool, accountId, into.id);
  return true;
}

/**
 * Deletes what the source has left of an account that is open elsewhere, but for what tells callers where. Returns how
 * many rows, children not counted.
 */
export async function deleteMoved(source: Cell, accountId: string): Promise<number> {
  const out = await moves.findMove(source.pool, accountId);
  if (out?.direction !== "out" || goesOn(out)) {
    throw new MoveRefusedError(
      `Account ${accountId} has not been moved away from here: finish the move first with \`sealpost account move\`.`,
    );
  }
  await moves.advanceMove(source.pool, accountId, out.id, "done", "deleting");
  await moves.endUsersKeys(source.pool, accountId);
  const deleted = await deleteAll(source.pool, LEFT_TABLES, accountId);
  await moves.advanceMove(source.pool, accountId, out.id, "deleting", "deleted");
  return deleted;
}
