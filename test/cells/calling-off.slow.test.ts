import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createMovePool } from "../../src/base/database/pools.ts";
import { closeAccount } from "../../src/cells/beginning.ts";
import { callOffMove, deleteMoved } from "../../src/cells/calling-off.ts";
import type { Move, MovePart } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { killedAt, TARGET_KEY } from "../support/cells.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { begin, countRows, publish, rowOf } from "../support/installation.ts";
import { accountId, cells, useMovableAccount } from "./movable-account.ts";

useMovableAccount();
let third: { database: TestDatabase; cell: Move["target"] };
beforeAll(async () => {
  const database = await createTestDatabase();
  const onError = () => undefined;
  const options = { databaseUrl: database.url, connectionsMax: 3, applicationName: "test move", onError };
  third = { database, cell: { pool: createMovePool(options), secretsKey: TARGET_KEY } };
});
afterAll(async () => {
  await third.cell.pool.end();
  await third.database.drop();
});
beforeEach(async () => {
  await publish(cells.source.pool, accountId, '{"id":"1","status":"succeeded"}');
});

const openIn = ({ pool }: TestDatabase) => countRows(pool, "open_deliveries", { account_id: accountId });

describe("a move to another target than it was begun with is refused", () => {
  it.each(["close", "copy", "finish", "never"] as const)("killed at: %s", async (place) => {
    const killed = place === "never" ? {} : killedAt(place);
    await moveAccount(cells.move(accountId, killed)).catch(() => undefined);
    // Of another name, and another database that is given the same name.
    for (const targetName of ["c3", "c2"]) {
      const astray = cells.move(accountId, { target: third.cell, targetName });
      await expect(moveAccount(astray)).rejects.toThrow(
        'to the cell "c2", whose database is not this target\'s',
      );
    }
    expect(await countRows(third.database.pool, "moves", { account_id: accountId })).toBe(0);
    await moveAccount(cells.move(accountId));
    expect([await openIn(cells.source), await openIn(cells.target)]).toEqual([0, 1]);
  });

  it("and so is calling it off there: it may be open where it was going", async () => {
    await expect(moveAccount(cells.move(accountId, killedAt("finish")))).rejects.toThrow("killed");
    expect(await openIn(cells.target)).toBe(1);
    await expect(callOffMove(cells.move(accountId, { target: third.cell }))).rejects.toThrow(
      'to the cell "c2", whose database is not this target\'s',
    );
    expect(await openIn(cells.source)).toBe(0);
    expect(await rowOf(cells.source.pool, "accounts", { id: accountId })).toMatchObject({ moved_to: "c2" });
  });
});

describe("a move that is called off", () => {
  it("while another process waits parks nothing any more, and closes nothing", async () => {
    const other = await begin(cells.source.pool, "select from sealpost.accounts");
    let calledOff: Promise<void> | null = null;
    const onProgress = (part: MovePart, detail: string | null) => {
      if (part !== "wait_for_transactions" || detail === null || calledOff !== null) return;
      calledOff = callOffMove(cells.move(accountId)).then(other.rollback);
    };
    await expect(moveAccount(cells.move(accountId, { onProgress }))).rejects.toThrow("called off");
    await calledOff;
    expect(await countRows(cells.source.pool, "parked_deliveries", { account_id: accountId })).toBe(0);
    expect(await openIn(cells.source)).toBe(1);
  });

  it("just before it closes the account leaves it open", async () => {
    await expect(moveAccount(cells.move(accountId, killedAt("close")))).rejects.toThrow("killed");
    const { id } = await rowOf(cells.source.pool, "moves", { account_id: accountId });
    await callOffMove(cells.move(accountId));
    await expect(closeAccount(cells.move(accountId), id)).rejects.toThrow("called off");
    expect(await rowOf(cells.source.pool, "accounts", { id: accountId })).toMatchObject({ moved_to: null });
  });

  it("on the way back can be begun again", async () => {
    await moveAccount(cells.move(accountId));
    const { source, target } = cells.move(accountId);
    await deleteMoved(source, accountId);
    const names = { targetName: "c1", sourceName: "c2" };
    const back = cells.move(accountId, { source: target, target: source, ...names });
    await expect(moveAccount({ ...back, ...killedAt("compare") })).rejects.toThrow("killed");
    await callOffMove(back);
    await moveAccount(back);
    expect([await openIn(cells.source), await openIn(cells.target)]).toEqual([1, 0]);
  });
});
