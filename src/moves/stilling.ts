import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { recoverCut } from "../store/claim.ts";
import { sequenceEvents } from "../store/feed.ts";
import {
  findOlderTransactions,
  findPrepared,
  findStillOpen,
  markStill,
  parkDeliveries,
  readFeedReach,
  readNextTransactionId,
  stopBackgroundWork,
} from "../store/move-stilling.ts";
import { giveUpCutMails } from "../store/notice-mails.ts";
import { whileItGoesOn } from "./beginning.ts";
import type { Move, MovePart } from "./move.ts";
import { MoveRefusedError } from "./move-refused-error.ts";

const LOOK_EVERY_MS = 100;
/** Every look reads all that is open, of whomever. */
const PARK_EVERY_MS = 500;
const PARKED_PER_STEP_MAX = 5_000;
const SEQUENCER_LEASE_MS = 600;

/**
 * Waits until nothing of a closed account changes any more: transactions that do not know yet that it is closed have
 * ended, attempts and calls that were under way have, too, what is open is parked, and the feed holds everything.
 */
export async function stillAccount(move: Move, moveId: string): Promise<void> {
  const { accountId, source, onProgress } = move;
  await waitForTransactions(move);
  await refuseHindered(move);
  await parkAll(move, moveId);
  await waitForFeed(move);
  onProgress("still", null);
  await markStill(source.pool, accountId, moveId);
}

/** Looked at again: now nothing can come any more that hinders it. */
async function refuseHindered({ accountId, source, findHindrance }: Move): Promise<void> {
  const hindrance = await findHindrance(source.pool, accountId);
  if (hindrance === null) return;
  throw new MoveRefusedError(`${hindrance} It is closed: call the move off with --cancel.`);
}

async function waitForTransactions(move: Move): Promise<void> {
  const { pool } = move.source;
  const older = await findOlderTransactions(pool);
  await waitFor(move, "wait_for_transactions", LOOK_EVERY_MS, async () =>
    (await findStillOpen(pool, older)).map(
      ({ pid, role, application }) =>
        `a transaction that was open before (pid ${pid}, role ${role}, application "${application}")`,
    ),
  );
  const xid = await readNextTransactionId(pool);
  await waitFor(move, "wait_for_transactions", LOOK_EVERY_MS, async () =>
    (await findPrepared(pool, xid)).map((gid) => `the prepared transaction "${gid}"`),
  );
}

async function parkAll(move: Move, moveId: string): Promise<void> {
  const { accountId, source } = move;
  await waitFor(move, "park", PARK_EVERY_MS, async () => {
    const { pool } = source;
    const goesOn = await whileItGoesOn(pool, accountId, moveId, (tx) => stopBackgroundWork(tx, accountId));
    await giveUpCutMails(pool);
    const { rest, cutIds } = await whileItGoesOn(pool, accountId, moveId, (tx) =>
      parkDeliveries(tx, accountId, PARKED_PER_STEP_MAX),
    );
    if (cutIds.length > 0) await recoverCut(pool, cutIds, null);
    return [
      ...(rest > 0 ? [`${rest} deliveries, which dispatchers have or which are still to be parked`] : []),
      ...(goesOn ? ["a receiver check or a mail that is under way"] : []),
    ];
  });
}

/** Makes the steps itself, where no process of the source does. */
async function waitForFeed(move: Move): Promise<void> {
  const { pool } = move.source;
  const holder = randomUUID();
  const { nowMs } = await readFeedReach(pool);
  await waitFor(move, "wait_for_feed", LOOK_EVERY_MS, async () => {
    await sequenceEvents(pool, holder, SEQUENCER_LEASE_MS);
    const { caughtUpAtMs } = await readFeedReach(pool);
    return caughtUpAtMs > nowMs ? [] : ["the feed, which does not hold everything yet"];
  });
}

/** Looks again and again until there is nothing to wait for. */
async function waitFor(
  { onProgress, waitMaxMs, accountId }: Move,
  part: MovePart,
  everyMs: number,
  look: () => Promise<readonly string[]>,
): Promise<void> {
  onProgress(part, null);
  const startedAtMs = performance.now();
  for (;;) {
    const [first, ...others] = await look();
    if (first === undefined) return;
    const waited = others.length === 0 ? first : `${first}, and ${others.length} more`;
    if (performance.now() - startedAtMs > waitMaxMs) {
      throw new MoveRefusedError(
        `Account ${accountId} is closed, but not still after ${Math.round(waitMaxMs / 1_000)} s of waiting for ` +
          `${waited}. Run the same command again, which goes on here; with --cancel it calls the move off.`,
      );
    }
    onProgress(part, waited);
    await delay(everyMs);
  }
}
