import type { ClientBase, Pool } from "pg";
import { readCron } from "../../base/database/graphile-worker.ts";
import { refuseBeyondStorage, storageRefusalOf } from "../../base/database/storage.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { isoTime } from "../../base/model/time.ts";
import { lastDue, nextDue } from "../model/due-times.ts";
import type { TriggerError } from "../model/triggers.ts";
import { roomForRuns } from "../store/runs.ts";
import { beginRuns, type DueSchedule, findDueAccounts, lockDue, settleSchedule } from "../store/triggers.ts";

/** How soon a due time is noticed; whoever notices very many begins some of them, and rests as long. */
export const START_EVERY_MS = 1_000;
const START_MS_MAX = 1_000;
/** When one that had no room tries again, if its next time does not come before. */
const AGAIN_MS = 60_000;

/**
 * Starts the runs of schedules that are due: account by account, by turns, however many each has. Any number of
 * processes may do so: a due time is settled in the transaction in which its run begins, by whoever has its row. Each
 * call does what it can in a second. @param now absent: the database's time
 */
export function createScheduling(pool: Pool): (now?: Date) => Promise<false> {
  let last = "";
  return async (now) => {
    const startMs = performance.now();
    const due = await findDueAccounts(pool, now ?? null);
    for (const accountId of [...due.filter((id) => id > last), ...due.filter((id) => id <= last)]) {
      if (performance.now() - startMs > START_MS_MAX) break;
      // Whatever goes wrong with one, the next look goes on behind it.
      last = accountId;
      const settle = (isFull: boolean) =>
        inTransaction(pool, async (tx) => {
          for (const schedule of await lockDue(tx, accountId, now ?? null))
            await settleDue(tx, accountId, schedule, isFull);
        });
      await settle(false).catch((error: unknown) => {
        if (storageRefusalOf(error) === null) throw error;
        return settle(true);
      });
    }
    return false;
  };
}

/** @param isFull the account may store no more: what its runs would take was refused */
async function settleDue(
  tx: ClientBase,
  accountId: string,
  schedule: DueSchedule,
  isFull: boolean,
): Promise<void> {
  const { workflowId, timeZone, catchUpSeconds, doneUntil, now, refusal } = schedule;
  const cron = await readCron(schedule.cron);
  if (typeof cron === "string") throw new Error(`The schedule of workflow ${workflowId}: ${cron}`);
  const due = { cron, timeZone };
  const [nowMs, doneMs] = [now.getTime(), doneUntil.getTime()];
  const dueMs = lastDue(due, Math.max(doneMs, nowMs - catchUpSeconds * 1_000 - 1), nowMs);
  const refused = refusal ?? (isFull ? "storage_full" : null);
  const error = dueMs === null ? null : (refused ?? (await start(tx, accountId, schedule, dueMs)));
  const isPutOff = error === "storage_full" || error === "too_many_workflow_runs";
  const nextMs = nextDue(due, Math.max(doneMs, nowMs)) ?? Number.POSITIVE_INFINITY;
  const lookMs = Math.min(nextMs, isPutOff ? nowMs + AGAIN_MS : nextMs);
  const nextAt = Number.isFinite(lookMs) ? new Date(lookMs) : null;
  const firedAt = dueMs === null || error !== null ? null : now;
  await settleSchedule(tx, accountId, workflowId, isPutOff ? doneUntil : now, nextAt, firedAt, error);
}

async function start(
  tx: ClientBase,
  accountId: string,
  { id: triggerId, userId, ...of }: DueSchedule,
  dueMs: number,
): Promise<TriggerError | null> {
  await refuseBeyondStorage(tx, accountId, userId, null);
  const room = await roomForRuns(tx, { accountId, userId }, 1);
  const begunFor = isoTime(dueMs);
  const input = JSON.stringify({ due_at: begunFor });
  const run = { ...of, userId, triggerId, begunFor, traceparent: null, input };
  const [begun] = await beginRuns(tx, accountId, JSON.stringify([run]), room);
  return begun?.id ? null : "too_many_workflow_runs";
}
