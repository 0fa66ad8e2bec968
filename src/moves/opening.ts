import { ACCOUNT_MOVED, COMMAND_LINE } from "../model/audit.ts";
import { writeAuditEntry } from "../store/audit-log.ts";
import { deleteRows } from "../store/move-deletion.ts";
import { PageReader, writePage } from "../store/move-pages.ts";
import { addRevocations, readRevocations } from "../store/move-revocations.ts";
import { resealPage } from "../store/move-seals.ts";
import { advanceFeedPosition, readFeedPosition, unparkAll } from "../store/move-stilling.ts";
import { API_KEYS, OPENING_TABLES } from "../store/move-tables.ts";
import { advanceMove, findMove, setMovedTo } from "../store/moves.ts";
import { inTransaction } from "../store/transaction.ts";
import { calledOff } from "./beginning.ts";
import type { Move } from "./move.ts";

/**
 * From now on only the target can say that the account is not open there: whoever calls the move off without it has
 * done so before, or is refused.
 */
async function announceOpening({ accountId, source }: Move, moveId: string): Promise<void> {
  if (await advanceMove(source.pool, accountId, moveId, "still", "opening")) return;
  const out = await findMove(source.pool, accountId);
  if (out?.id !== moveId || (out.step !== "opening" && out.step !== "done")) throw calledOff(accountId);
}

/**
 * The account appears at the target, with all that opens it, in one transaction: before, it is unknown there, and after
 * it takes publications, delivers, and goes on with what was open. Once it is, this does nothing.
 */
export async function openAtTarget(move: Move, moveId: string): Promise<void> {
  const { accountId, source, target, sourceName } = move;
  await announceOpening(move, moveId);
  // Read when the source gives no position beyond the end of its feed any more: no cursor of a reader is beyond it.
  await advanceFeedPosition(target.pool, await readFeedPosition(source.pool));
  const reader = new PageReader(source.pool, accountId);
  await inTransaction(target.pool, async (tx) => {
    // Held until the end: two that open it take turns, and nobody can call it off meanwhile.
    if (!(await advanceMove(tx, accountId, moveId, "begun", "done"))) {
      const into = await findMove(tx, accountId);
      if (into?.id === moveId && into.step === "done") return;
      throw calledOff(accountId);
    }
    // Of an account that comes back, those that stayed as they were then.
    while ((await deleteRows(tx, API_KEYS, accountId)) > 0);
    for (const table of OPENING_TABLES) {
      let after: readonly string[] | null = null;
      do {
        const page = await reader.readPage(table, after);
        await writePage(tx, resealPage(page, source.secretsKey, target.secretsKey));
        after = page.next;
      } while (after !== null);
    }
    await setMovedTo(tx, accountId, null);
    await unparkAll(tx, accountId);
    await tellOf(tx, accountId, { move_id: moveId, from: sourceName });
  });
}

/** The source knows that the account is open at the target, and that its own rows can be deleted. */
export async function finishAtSource(
  { accountId, source, target, targetName }: Move,
  moveId: string,
): Promise<void> {
  // What was revoked in one of the two while the account was opened: its keys had been read already, or were not there
  // yet. From now on it can be revoked in both.
  const [here, there] = await Promise.all([
    readRevocations(source.pool, accountId),
    readRevocations(target.pool, accountId),
  ]);
  await addRevocations(target.pool, accountId, here);
  await addRevocations(source.pool, accountId, there);
  await inTransaction(source.pool, async (tx) => {
    if (!(await advanceMove(tx, accountId, moveId, "opening", "done"))) return;
    await tellOf(tx, accountId, { move_id: moveId, to: targetName });
  });
}

async function tellOf(
  tx: Parameters<typeof writeAuditEntry>[0],
  accountId: string,
  details: Readonly<Record<string, unknown>>,
): Promise<void> {
  const entry = { accountId, actor: COMMAND_LINE, requestId: null, operationKey: ACCOUNT_MOVED, details };
  await writeAuditEntry(tx, entry);
}
