import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { ClientBase } from "pg";
import { deleteRows } from "../base/database/account-rows.ts";
import { type AuditEntry, writeAuditEntry } from "../base/database/audit-log.ts";
import { makePartitionsSince, readFirstDay } from "../base/database/partitions.ts";
import { inTransaction } from "../base/database/transaction.ts";
import { ACCOUNT_MOVED, COMMAND_LINE } from "../base/model/audit.ts";
import { recoverInterrupted } from "../delivery/claim-sql.ts";
import { sequenceEvents } from "../feed/feed-sql.ts";
import { giveUpCutMails } from "../notices/notice-mails-sql.ts";
import { beginMove, calledOff, closeAccount, whileItGoesOn } from "./beginning.ts";
import { eraseCopied, lockErasable, UNNAMED_CELL } from "./erasures-sql.ts";
import { type Move, type MovePart, MoveRefusedError } from "./move.ts";
import {
  countRows,
  type Page,
  PageReader,
  readCopied,
  resealPage,
  writeCopied,
  writePage,
} from "./move-pages-sql.ts";
import { API_KEYS, LOG_TABLES, OPENING_TABLES } from "./move-tables-sql.ts";
import * as moves from "./moves-sql.ts";
import { LOOK_EVERY_MS, untilTransactionsEnd, type Waiting, waitFor } from "./waiting.ts";

/**
 * Copies all rows that only have to be there, page by page, each in a transaction that also says how far it has come.
 * Between two pages it rests for as long as a page takes: half of a core is everybody else's.
 */
async function copyLog(move: Move, moveId: string): Promise<void> {
  const { accountId, source, target, onProgress } = move;
  const reader = new PageReader(source.pool, accountId);
  const firstDay = await readFirstDay(source.pool, accountId);
  if (firstDay !== null) await makePartitionsSince(target.pool, firstDay);
  let copied = await readCopied(target.pool, accountId);
  for (const table of LOG_TABLES) {
    const after = copied[table.name] ?? null;
    if (after === "all") continue;
    let startedAtMs = performance.now();
    for await (const page of reader.readPages(table, after)) {
      onProgress("copy", table.name);
      copied = { ...copied, [table.name]: page.next ?? "all" };
      await inTransaction(target.pool, async (tx) => {
        const write = (one: Page) => writePage(tx, resealPage(one, source.secretsKey, target.secretsKey));
        await write(page);
        for (const child of page.rows.length === 0 ? [] : (table.children ?? [])) {
          for await (const children of reader.readChildren(child, page)) await write(children);
        }
        if (!(await writeCopied(tx, accountId, moveId, copied))) throw calledOff(accountId);
      });
      await delay(performance.now() - startedAtMs);
      startedAtMs = performance.now();
    }
  }
}

/** @throws MoveRefusedError when rows are missing at the target; then the next run copies everything again */
async function compareCounts({ accountId, source, target }: Move, moveId: string): Promise<void> {
  for (const table of LOG_TABLES) {
    const [there, here] = await Promise.all([
      countRows(target.pool, table, accountId),
      countRows(source.pool, table, accountId),
    ]);
    // The source forgets what is too old, and so does the target.
    if (there >= here) continue;
    await inTransaction(target.pool, (tx) => writeCopied(tx, accountId, moveId, {}));
    throw new MoveRefusedError(
      `The target has ${there} of ${here} rows of ${table.name}. Run the same command again, ` +
        "which copies what is missing.",
    );
  }
}

/**
 * From now on only the target can say that the account is not open there: whoever calls the move off without it has
 * done so before, or is refused.
 */
async function announceOpening({ accountId, source }: Move, moveId: string): Promise<void> {
  if (await moves.advanceMove(source.pool, accountId, moveId, "still", "opening")) return;
  const out = await moves.findMove(source.pool, accountId);
  if (out?.id !== moveId || (out.step !== "opening" && out.step !== "done")) throw calledOff(accountId);
}

/**
 * The account appears at the target, with all that opens it, in one transaction: before, it is unknown there, and after
 * it takes publications, delivers, and goes on with what was open. Once it is, this does nothing.
 */
async function openAtTarget(move: Move, moveId: string): Promise<void> {
  const { accountId, source, target, sourceName, targetName } = move;
  await announceOpening(move, moveId);
  // Read when the source gives no position beyond the end of its feed any more: no cursor of a reader is beyond it.
  const { position } = await moves.readFeedReach(source.pool);
  await moves.advanceFeedPosition(target.pool, position);
  const reader = new PageReader(source.pool, accountId);
  await inTransaction(target.pool, async (tx) => {
    // Held until the end: two that open it take turns, and nobody can call it off meanwhile.
    if (!(await moves.advanceMove(tx, accountId, moveId, "begun", "done"))) {
      const into = await moves.findMove(tx, accountId);
      if (into?.id === moveId && into.step === "done") return;
      throw calledOff(accountId);
    }
    // Of an account that comes back, those that stayed as they were then.
    while ((await deleteRows(tx, API_KEYS, accountId)) > 0);
    for (const table of OPENING_TABLES) {
      for await (const page of reader.readPages(table)) {
        await writePage(tx, resealPage(page, source.secretsKey, target.secretsKey));
      }
    }
    const { cameFrom } = (await lockErasable(source.pool, accountId))!;
    const cells = new Set([...cameFrom, sourceName ?? UNNAMED_CELL]);
    cells.delete(targetName);
    await moves.arrive(tx, accountId, [...cells]);
    await moves.unparkAll(tx, accountId);
    await tellOf(tx, accountId, { move_id: moveId, from: sourceName });
  });
}

/** The source knows that the account is open at the target, and that its own rows can be deleted. */
async function finishAtSource(move: Move, moveId: string): Promise<void> {
  const { accountId, source, target, targetName } = move;
  // What was revoked in one of the two while the account was opened: its keys had been read already, or were not there
  // yet. From now on it can be revoked in both.
  await moves.copyRevocations(source.pool, target.pool, accountId);
  await moves.copyRevocations(target.pool, source.pool, accountId);
  await inTransaction(source.pool, async (tx) => {
    if (!(await moves.advanceMove(tx, accountId, moveId, "opening", "done"))) return;
    await tellOf(tx, accountId, { move_id: moveId, to: targetName });
  });
}

async function tellOf(tx: ClientBase, accountId: string, details: AuditEntry["details"]): Promise<void> {
  const entry = { accountId, actor: COMMAND_LINE, requestId: null, operationKey: ACCOUNT_MOVED, details };
  await writeAuditEntry(tx, entry);
}

/** Every look reads all that is open, of whomever. */
const PARK_EVERY_MS = 500;
const PARKED_PER_STEP_MAX = 5_000;
const SEQUENCER_LEASE_MS = 600;

/**
 * Waits until nothing of a closed account changes any more: transactions that do not know yet that it is closed have
 * ended, attempts and calls that were under way have, too, what is open is parked, and the feed holds everything.
 */
async function quiesceAccount(move: Move, moveId: string): Promise<void> {
  const { accountId, source, onProgress } = move;
  await untilTransactionsEnd(source.pool, waitingFor(move, "wait_for_transactions"));
  // Looked at again: now nothing can come any more that hinders it.
  const hindrance = await move.findHindrance(source.pool, accountId);
  if (hindrance !== null)
    throw new MoveRefusedError(`${hindrance} The account is closed now: call the move off with --cancel.`);
  await parkAll(move, moveId);
  await waitForFeed(move);
  onProgress("still", null);
  await moves.markStill(source.pool, accountId, moveId);
}

async function parkAll(move: Move, moveId: string): Promise<void> {
  const { accountId, source } = move;
  await waitFor(waitingFor(move, "park"), PARK_EVERY_MS, async () => {
    const { pool } = source;
    const goesOn = await whileItGoesOn(pool, accountId, moveId, (tx) =>
      moves.stopBackgroundWork(tx, accountId),
    );
    await giveUpCutMails(pool);
    const { rest, cutIds } = await whileItGoesOn(pool, accountId, moveId, (tx) =>
      moves.parkDeliveries(tx, accountId, PARKED_PER_STEP_MAX),
    );
    if (cutIds.length > 0) await recoverInterrupted(pool, cutIds, null);
    return [
      ...(rest > 0 ? [`${rest} deliveries that dispatchers hold or that are still to be parked`] : []),
      ...(goesOn ? ["a receiver check or an email in progress"] : []),
    ];
  });
}

/** Makes the steps itself, where no process of the source does. */
async function waitForFeed(move: Move): Promise<void> {
  const { pool } = move.source;
  const holder = randomUUID();
  const { nowMs } = await moves.readFeedReach(pool);
  await waitFor(waitingFor(move, "wait_for_feed"), LOOK_EVERY_MS, async () => {
    await sequenceEvents(pool, holder, SEQUENCER_LEASE_MS);
    const { caughtUpAtMs } = await moves.readFeedReach(pool);
    return caughtUpAtMs > nowMs ? [] : ["the feed, which does not hold everything yet"];
  });
}

function waitingFor({ onProgress, waitMaxMs, accountId }: Move, part: MovePart): Waiting {
  return {
    waitMaxMs,
    onWait: (whom) => onProgress(part, whom),
    tooLong: (seconds, whom) =>
      new MoveRefusedError(
        `Account ${accountId} is closed, but not idle after ${seconds} s of waiting for ${whom}. Run the same ` +
          "command again, which continues here; with --cancel it calls the move off.",
      ),
  };
}

/**
 * Moves an account to another cell. Each step can be cut off anywhere and run again: until the account is open at the
 * target nothing but its being closed has changed for anybody, and opening it is one transaction. What was copied stays
 * at the source until it is deleted apart.
 *
 * @throws MoveRefusedError saying what to do
 */
export async function moveAccount(move: Move): Promise<moves.StoredMove> {
  const { onProgress } = move;
  onProgress("prepare", null);
  const begun = await beginMove(move);
  if (begun.step === "begun") {
    onProgress("close", null);
    await closeAccount(move, begun.id);
    await quiesceAccount(move, begun.id);
  }
  if (!(await isOpen(move, begun))) {
    await copyLog(move, begun.id);
    onProgress("compare", null);
    await compareCounts(move, begun.id);
    await eraseCopied(move.source.pool, move.target.pool, move.accountId);
    onProgress("open", null);
    await openAtTarget(move, begun.id);
  }
  onProgress("finish", null);
  // What was erased here while it was being opened.
  await eraseCopied(move.source.pool, move.target.pool, move.accountId);
  await finishAtSource(move, begun.id);
  return begun;
}

async function isOpen({ accountId, target }: Move, { id, step }: moves.StoredMove): Promise<boolean> {
  const into = await moves.findMove(target.pool, accountId);
  if (into?.id !== id || into.step === "deleting") throw calledOff(accountId);
  if (into.step === "done") return true;
  if (step !== "deleting") return false;
  throw new MoveRefusedError(
    `The target has lost account ${accountId}, perhaps through a restore, and what the source has left of it is ` +
      "being deleted: restore the target to a later point in time.",
  );
}
