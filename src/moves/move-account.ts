import { findMove, type StoredMove } from "../store/moves.ts";
import { beginMove, calledOff, closeAccount } from "./beginning.ts";
import { compareCounts, copyLog } from "./copying.ts";
import type { Move } from "./move.ts";
import { MoveRefusedError } from "./move-refused-error.ts";
import { finishAtSource, openAtTarget } from "./opening.ts";
import { stillAccount } from "./stilling.ts";

/**
 * Moves an account to another cell. Each step can be cut off anywhere and run again: until the account is open at the
 * target nothing but its being closed has changed for anybody, and opening it is one transaction. What was copied stays
 * at the source until it is deleted apart.
 *
 * @throws MoveRefusedError saying what to do
 */
export async function moveAccount(move: Move): Promise<StoredMove> {
  const { onProgress } = move;
  onProgress("prepare", null);
  const begun = await beginMove(move);
  if (begun.step === "begun") {
    onProgress("close", null);
    await closeAccount(move, begun.id);
    await stillAccount(move, begun.id);
  }
  if (!(await isOpen(move, begun))) {
    await copyLog(move, begun.id);
    onProgress("compare", null);
    await compareCounts(move, begun.id);
    onProgress("open", null);
    await openAtTarget(move, begun.id);
  }
  onProgress("finish", null);
  await finishAtSource(move, begun.id);
  return begun;
}

async function isOpen({ accountId, target }: Move, { id, step }: StoredMove): Promise<boolean> {
  const into = await findMove(target.pool, accountId);
  if (into?.id !== id || into.step === "deleting") throw calledOff(accountId);
  if (into.step === "done") return true;
  if (step !== "deleting") return false;
  throw new MoveRefusedError(
    `The target has lost account ${accountId}, perhaps by a restore, and what the source has left of it is being ` +
      "deleted: restore the target to a later time.",
  );
}
