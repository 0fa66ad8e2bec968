import { beforeEach, describe, expect, it } from "vitest";
import { callOffLostMove, callOffMove } from "../../src/cells/calling-off.ts";
import type { MovePart } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { killedAt, TARGET_KEY } from "../support/cells.ts";
import { begin, countRows, publish, rowOf, untilSomebodyWaits } from "../support/installation.ts";
import { accountId, cells, useMovableAccount } from "./movable-account.ts";

useMovableAccount();
beforeEach(async () => {
  await publish(cells.source.pool, accountId, '{"id":"1","status":"succeeded"}');
});

async function kill(place: MovePart): Promise<void> {
  await expect(moveAccount(cells.move(accountId, killedAt(place)))).rejects.toThrow("killed");
}

const openAt = (cell: "source" | "target") =>
  countRows(cells[cell].pool, "open_deliveries", { account_id: accountId });

describe("a move whose target is lost", () => {
  it.each(["close", "wait_for_transactions", "park", "still", "copy", "compare", "open"] as const)(
    "before the account opened there is called off without it: killed at %s",
    async (place) => {
      await kill(place);
      await callOffLostMove(cells.move(accountId));
      await publish(cells.source.pool, accountId, '{"id":"2","status":"succeeded"}');
      expect([await openAt("source"), await openAt("target")]).toEqual([2, 0]);

      // It comes back all the same.
      if (place !== "close") {
        await expect(moveAccount(cells.move(accountId))).rejects.toThrow("--cancel");
      }
      await callOffMove(cells.move(accountId));
      for (const table of ["moves", "deliveries", "parked_deliveries"]) {
        expect(await countRows(cells.target.pool, table, { account_id: accountId }), table).toBe(0);
      }
      await expect(callOffMove(cells.move(accountId))).rejects.toThrow("has no move in progress");
      await moveAccount(cells.move(accountId));
      expect([await openAt("source"), await openAt("target")]).toEqual([0, 2]);
    },
  );

  it("when it may have opened there is refused, and so is one that is over", async () => {
    // Opening fails in the middle.
    const { source } = cells.move(accountId);
    const wrong = { ...source, secretsKey: TARGET_KEY };
    await expect(moveAccount(cells.move(accountId, { source: wrong }))).rejects.toThrow();
    const lost = { accountId, source };
    await expect(callOffLostMove(lost)).rejects.toThrow('may be open at the target, in the cell "c2"');
    await kill("finish");
    await expect(callOffLostMove(lost)).rejects.toThrow("may be open");
    await moveAccount(cells.move(accountId));
    await expect(callOffLostMove(lost)).rejects.toThrow("is open at the target");
    expect(await rowOf(cells.source.pool, "accounts", { id: accountId })).toMatchObject({ moved_to: "c2" });
    expect([await openAt("source"), await openAt("target")]).toEqual([0, 1]);
  });

  it("is not opened there by a process that still copies", async () => {
    await kill("open");
    const row = await begin(cells.source.pool, "select from sealpost.moves for update");
    const lost = callOffLostMove(cells.move(accountId));
    await untilSomebodyWaits(cells.source.pool);
    const moving = expect(moveAccount(cells.move(accountId))).rejects.toThrow("called off");
    await untilSomebodyWaits(cells.source.pool, 2);
    await row.rollback();
    await lost;
    await moving;
    expect([await openAt("source"), await openAt("target")]).toEqual([1, 0]);
    await callOffMove(cells.move(accountId));
  });

  it("and restored from before the move is copied to again, unless the source's rows are going", async () => {
    await moveAccount(cells.move(accountId));
    const restored = async () => {
      const tables = ["open_deliveries", "attempts", "bodies", "deliveries", "analyses", "feed", "audit_log"];
      const opened = ["signing_secrets", "endpoints", "api_keys"];
      for (const table of [...tables, "moves", ...opened]) {
        await cells.target.pool.query(`delete from sealpost.${table} where account_id = $1`, [accountId]);
      }
      await cells.target.pool.query("delete from sealpost.accounts where id = $1", [accountId]);
    };
    await restored();
    await moveAccount(cells.move(accountId));
    expect(await openAt("target")).toBe(1);
    await restored();
    const { pool } = cells.source;
    await pool.query("update sealpost.moves set step = 'deleting' where account_id = $1", [accountId]);
    await expect(moveAccount(cells.move(accountId))).rejects.toThrow(
      "restore the target to a later point in time",
    );
    expect(await openAt("target")).toBe(0);
  });
});
