import { randomUUID } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { accountExists } from "../accounts/accounts-sql.ts";
import { type Retention, readClock, readRetention } from "../base/database/cells.ts";
import { keepSecretsKey } from "../base/database/sealing.ts";
import { inTransaction } from "../base/database/transaction.ts";
import { DAY_MS } from "../base/model/time.ts";
import { lockErasable } from "./erasures-sql.ts";
import { type Cells, type Move, MoveRefusedError } from "./move.ts";
import * as moves from "./moves-sql.ts";

/** More than synchronized clocks differ, and less than anybody notices who waits for a retry. */
const CLOCKS_APART_MS_MAX = 10_000;
const CLOCK_TRIES = 3;

/** The variables that they come from, and their unit. */
const VARIABLES: Readonly<Record<keyof Retention, { readonly name: string; readonly unitMs: number }>> = {
  analysisRetentionMs: { name: "ANALYSIS_RETENTION_SECONDS", unitMs: 1_000 },
  logRetentionMs: { name: "LOG_RETENTION_DAYS", unitMs: DAY_MS },
  auditRetentionMs: { name: "The audit log's retention in days", unitMs: DAY_MS },
  idempotencyRetentionMs: { name: "The retention of idempotency keys in seconds", unitMs: 1_000 },
};

/**
 * @throws MoveRefusedError when something of an account would be forgotten at the target sooner than at the source, or
 * would be due or expire at another time
 */
export async function refuseDifferences({ source, target }: Cells): Promise<void> {
  const [here, there] = await Promise.all([readRetention(source.pool), readRetention(target.pool)]);
  refuseFor(retentionRefusalOf(here, there));
  refuseFor(clockRefusalOf(await measureAheadMs({ source, target })));
}

/** @throws MoveRefusedError unless the reason is null */
function refuseFor(reason: string | null): void {
  if (reason !== null) throw new MoveRefusedError(reason);
}

/** Null: nothing is forgotten sooner at the target, or one of the two has never forgotten anything. */
export function retentionRefusalOf(here: Retention | null, there: Retention | null): string | null {
  if (here === null || there === null) return null;
  const shorter = (Object.keys(VARIABLES) as (keyof Retention)[]).filter((name) => there[name] < here[name]);
  if (shorter.length === 0) return null;
  const told = shorter.map((name) => {
    const { name: variable, unitMs } = VARIABLES[name];
    return `${variable} is ${there[name] / unitMs} there and ${here[name] / unitMs} here`;
  });
  return (
    `The target keeps less than the source: ${told.join(", ")}. Older data would be lost: give the target's ` +
    "`dispatch` at least as much; its leader stores that within a minute."
  );
}

/** @param aheadMs by how much the target's clock is ahead of the source's; negative: behind */
export function clockRefusalOf(aheadMs: number): string | null {
  if (Math.abs(aheadMs) <= CLOCKS_APART_MS_MAX) return null;
  const seconds = Math.round(Math.abs(aheadMs) / 1_000);
  const [where, effect] =
    aheadMs > 0
      ? ["ahead of", "expires early, and retries come early"]
      : ["behind", "expires late, and retries come late"];
  return (
    `The clock of the target's server is ${seconds} s ${where} the source's: what can expire (keys, the log) ` +
    `${effect} there. Set the clocks (NTP) first.`
  );
}

/** The one time of some that took least: a busy server answers late, which is no difference. */
async function measureAheadMs({ source, target }: Cells): Promise<number> {
  let best = { tookMs: Number.POSITIVE_INFINITY, aheadMs: 0 };
  for (let tries = 0; tries < CLOCK_TRIES; tries++) {
    const startedAtMs = performance.now();
    const [here, there] = await Promise.all([readClock(source.pool), readClock(target.pool)]);
    const tookMs = performance.now() - startedAtMs;
    if (tookMs < best.tookMs) best = { tookMs, aheadMs: there - here };
  }
  // So much of it may be the way.
  return Math.sign(best.aheadMs) * Math.max(0, Math.abs(best.aheadMs) - best.tookMs);
}

/** For people. */
export const WRONG_TARGET_KEY = "The target's secrets are encrypted with a different key from the one given.";

/**
 * Compares the two databases.
 * @param migrations what both must have: the names of the files of this version, without those of areas
 * @throws MoveRefusedError when no account can go from one to the other
 */
export async function compareCells({ source, target }: Cells, migrations: readonly string[]) {
  const [from, to] = await Promise.all([moves.readCellFacts(source.pool), moves.readCellFacts(target.pool)]);
  if (from === null || to === null) {
    throw new MoveRefusedError(
      `The ${from === null ? "source" : "target"} has no Sealpost tables yet: run \`sealpost migrate\` on it first.`,
    );
  }
  refuseFor(refusalOf(from, to, migrations));
  return { source: from, target: to };
}

/** Null: an account can go from one to the other. */
export function refusalOf(
  from: moves.CellFacts,
  to: moves.CellFacts,
  migrations: readonly string[],
): string | null {
  if (from.isStandby) return "The source is a standby, which cannot be written to: name its primary.";
  if (to.isStandby) return "The target is a standby, which cannot be written to: name its primary.";
  if (from.identity === to.identity) return "The target is the same database as the source.";
  // An area's are only compared with the other database's: not every installation has them.
  const names = (facts: moves.CellFacts) =>
    facts.migrations.map((one) => one.split(" ")[0]!).filter((name) => !name.includes("/"));
  const differs = [from, to].find((facts) => names(facts).join() !== migrations.join());
  if (differs === undefined && from.migrations.join() === to.migrations.join()) return null;
  const which = differs === from ? "source" : "target";
  return (
    `The ${which} is not on this version: run this version's \`sealpost migrate\` on both databases, ` +
    "and this version's processes."
  );
}

/**
 * Begins the move, or finds it begun. The target knows of it before the source is closed, which is closed only where it
 * can be copied to.
 */
export async function beginMove(move: Move): Promise<moves.StoredMove> {
  const { accountId, source, target, targetName } = move;
  if (!(await accountExists(source.pool, accountId))) {
    throw new MoveRefusedError(
      `There is no account ${accountId}; \`sealpost account list\` lists all accounts.`,
    );
  }
  const out = await moves.findMove(source.pool, accountId);
  const begun = out?.direction === "out" && out.step !== "deleted" ? out : null;
  if (begun !== null) {
    await requireItsTarget(move, begun);
    return await tellTarget(move, begun.id);
  }
  const movedTo = await moves.findMovedTo(source.pool, accountId);
  if (movedTo !== null) {
    throw new MoveRefusedError(
      `Account ${accountId} is already in the cell "${movedTo}": move it from there.`,
    );
  }
  refuseFor(await move.findHindrance(source.pool, accountId));
  await refuseDifferences(move);
  await refuseTarget(move, await moves.findMove(target.pool, accountId));
  // In a cell that is new, what is copied is the first that is sealed there.
  if (!(await keepSecretsKey(target.pool, target.secretsKey, { isStoring: true }))) {
    throw new MoveRefusedError(WRONG_TARGET_KEY);
  }
  const id = randomUUID();
  const otherDatabase = await moves.identifyDatabase(target.pool);
  const begins = { id, direction: "out", otherCell: targetName, otherDatabase } as const;
  // Somebody else has just begun it: that one goes on.
  if (!(await moves.insertMove(source.pool, accountId, begins))) return await beginMove(move);
  return await tellTarget(move, id);
}

/** While it is held at the source, so that nobody calls it off, or tells of another one, meanwhile. */
async function tellTarget(move: Move, id: string): Promise<moves.StoredMove> {
  const { accountId, source, sourceName, target } = move;
  return await inTransaction(source.pool, async (tx) => {
    const out = await moves.lockMove(tx, accountId);
    if (out?.id !== id) throw calledOff(accountId);
    const into = await moves.findMove(target.pool, accountId);
    if (into?.direction === "in" && into.id === id) return out;
    await refuseTarget(move, into);
    const otherDatabase = await moves.identifyDatabase(source.pool);
    const arrives = { id, direction: "in", otherCell: sourceName, otherDatabase } as const;
    if (await moves.insertMove(target.pool, accountId, arrives)) return out;
    throw new MoveRefusedError(`Somebody else is moving account ${accountId} to the target right now.`);
  });
}

/**
 * Another one has nothing of this move, so it would open the account a second time, from what is left here; and what it
 * says of the move, when that is called off, is not what the right one says.
 */
export async function requireItsTarget(
  { accountId, target }: Pick<Move, "accountId" | "target">,
  { otherCell, otherDatabase }: moves.StoredMove,
): Promise<void> {
  if (otherDatabase === null || (await moves.identifyDatabase(target.pool)) === otherDatabase) return;
  throw new MoveRefusedError(
    `Account ${accountId} is being moved, or was, to the cell "${otherCell}", whose database is not this target's: ` +
      "name that one.",
  );
}

/** The account must not be there yet, but for what an earlier move away from there has left. */
async function refuseTarget({ accountId, target }: Move, into: moves.StoredMove | null): Promise<void> {
  if (into?.direction === "out" && into.step === "deleted") return;
  if (into?.direction === "in" && into.step === "deleting") {
    throw new MoveRefusedError(
      `The target still has copies from a move of account ${accountId} that was called off: run ` +
        "the move with --cancel again, which deletes the rest.",
    );
  }
  if (into?.direction === "in" && into.step === "begun") {
    throw new MoveRefusedError(
      `Another move of account ${accountId} to the target was started, from ` +
        `${into.otherCell ?? "a cell without a name"}: finish that one, or call it off with --cancel.`,
    );
  }
  if (into === null) {
    if ((await lockErasable(target.pool, accountId)) === null) return;
    // Erased ones stay. Moved away and deleted there, and a move back was called off.
    if ((await moves.findMovedTo(target.pool, accountId)) !== null) return;
  }
  throw new MoveRefusedError(
    `The target already has an account ${accountId}, which is not from a move in progress. If it was moved ` +
      "away from there, run `sealpost account delete-moved` there first.",
  );
}

/** Publishing and writes are refused from now on. */
export async function closeAccount({ accountId, source, targetName }: Move, moveId: string): Promise<void> {
  await whileItGoesOn(source.pool, accountId, moveId, async (tx) => {
    await moves.setMovedTo(tx, accountId, targetName);
    if (await accountExists(tx, accountId)) return;
    throw new MoveRefusedError(`Account ${accountId} is being erased: call the move off with --cancel.`);
  });
}

/**
 * Runs `work` at the source in a transaction in which the move cannot be called off: what that has put back must not be
 * taken again by a process that was still waiting.
 */
export async function whileItGoesOn<T>(
  pool: Pool,
  accountId: string,
  moveId: string,
  work: (tx: ClientBase) => Promise<T>,
): Promise<T> {
  return await inTransaction(pool, async (tx) => {
    if (await moves.holdMove(tx, accountId, moveId)) return await work(tx);
    throw calledOff(accountId);
  });
}

/** What a process finds that still moves an account. */
export function calledOff(accountId: string): MoveRefusedError {
  return new MoveRefusedError(
    `The move of account ${accountId} was called off, or somebody else has finished it.`,
  );
}
