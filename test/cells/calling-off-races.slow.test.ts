import type { Pool } from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import { callOffMove } from "../../src/cells/calling-off.ts";
import type { MovePart } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { killedAt } from "../support/cells.ts";
import {
  begin,
  countRows,
  findWaiting,
  lockTable,
  publish,
  rowOf,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { accountId, cells, useMovableAccount } from "./movable-account.ts";

useMovableAccount();
beforeEach(async () => {
  await publish(cells.source.pool, accountId, '{"id":"1","status":"succeeded"}');
});

/** Nothing says of an account that is open here that it may be copied, or deleted. */
async function expectHere(): Promise<void> {
  expect(await rowOf(cells.source.pool, "accounts", { id: accountId })).toMatchObject({ moved_to: null });
  expect(await countRows(cells.source.pool, "moves", { account_id: accountId })).toBe(0);
  expect(await countRows(cells.source.pool, "open_deliveries", { account_id: accountId })).toBe(1);
  expect(await countRows(cells.target.pool, "accounts", { id: accountId })).toBe(0);
}

const countWaiting = async (pool: Pool) => (await findWaiting(pool)).length;

describe("a move that is called off while another process", () => {
  it("is about to open the account ends there, and is nowhere said to be done", async () => {
    await expect(moveAccount(cells.move(accountId, killedAt("open")))).rejects.toThrow("killed");
    // Whoever calls it off waits here first, and then before what it deletes last.
    const row = await begin(cells.target.pool, "select from sealpost.moves for update");
    const rows = await lockTable(cells.target.pool, "notice_mails");
    const callingOff = callOffMove(cells.move(accountId));
    await untilSomebodyWaits(cells.target.pool);
    const moving = moveAccount(cells.move(accountId)).then(
      () => "moved",
      (error: Error) => error.message,
    );
    await row.rollback();
    expect(await moving).toContain("called off");
    await rows.rollback();
    await callingOff;
    await expectHere();
  });

  it("is about to find it still leaves no move that goes on", async () => {
    const other = await begin(cells.source.pool, "select from sealpost.accounts");
    let isWaiting = false;
    let isCopying = false;
    const onProgress = (part: MovePart, detail: string | null) => {
      isWaiting ||= part === "wait_for_transactions" && detail !== null;
      isCopying ||= part === "copy";
    };
    const moving = moveAccount(cells.move(accountId, { onProgress })).then(
      () => "moved",
      (error: Error) => error.message,
    );
    await expect.poll(() => isWaiting).toBe(true);
    const row = await begin(cells.target.pool, "select from sealpost.moves for update");
    const callingOff = callOffMove(cells.move(accountId));
    await untilSomebodyWaits(cells.target.pool);
    await other.rollback();
    const isStopped = async () => isCopying || (await countWaiting(cells.source.pool)) > 0;
    await expect.poll(isStopped).toBe(true);
    await row.rollback();
    await callingOff;
    expect(await moving).toContain("called off");
    await expectHere();
  });
});

describe("two that begin to move an account at once", () => {
  it("move it together", async () => {
    const held = await begin(cells.source.pool, "lock table sealpost.moves in share row exclusive mode");
    const both = [moveAccount(cells.move(accountId)), moveAccount(cells.move(accountId))];
    await expect.poll(() => countWaiting(cells.source.pool)).toBe(2);
    await held.rollback();
    const results = await Promise.allSettled(both);
    expect(results.map(({ status }) => status)).toContain("fulfilled");
    await moveAccount(cells.move(accountId));
    expect(await countRows(cells.target.pool, "open_deliveries", { account_id: accountId })).toBe(1);
    expect(await rowOf(cells.source.pool, "moves", { account_id: accountId })).toMatchObject({
      step: "done",
    });
  });
});
