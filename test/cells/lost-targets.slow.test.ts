import { readFile } from "node:fs/promises";
import { beforeEach, describe, expect, it } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { callOffLostMove, callOffMove, deleteMoved } from "../../src/cells/calling-off.ts";
import { eraseAccount } from "../../src/cells/erase-account.ts";
import type { MovePart } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { eraseAnalysis, forgetDelivered } from "../../src/delivery/erase-sql.ts";
import { killedAt, TARGET_KEY } from "../support/cells.ts";
import {
  begin,
  changeRows,
  countRows,
  insertRow,
  publish,
  rowOf,
  tablesWith,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { patience } from "../support/time-limits.ts";
import { accountId, cells, useMovableAccount } from "./movable-account.ts";

useMovableAccount();
beforeEach(async () => {
  await publish(cells.source.pool, accountId, '{"id":"1","status":"succeeded"}');
});

async function kill(place: MovePart): Promise<void> {
  await expect(moveAccount(cells.move(accountId, killedAt(place)))).rejects.toThrow("killed");
}

/** As after a restore: also while the account is closed. */
const eraseHere = (analysisId: string) =>
  inTransaction(cells.source.pool, (tx) =>
    eraseAnalysis(tx, async () => [], accountId, analysisId, "reapplying"),
  );

const openAt = (cell: "source" | "target") =>
  countRows(cells[cell].pool, "open_deliveries", { account_id: accountId });

describe("a move whose target is lost", () => {
  it.each(["close", "wait_for_transactions", "park", "still", "copy", "compare", "open"] as const)(
    "before the account opened there is called off without it: killed at %s",
    async (place) => {
      await kill(place);
      await callOffLostMove(cells.move(accountId));
      // It may have what was copied.
      const { came_from } = await rowOf(cells.source.pool, "accounts", { id: accountId });
      expect(came_from).toEqual(["c2"]);
      await publish(cells.source.pool, accountId, '{"id":"2","status":"succeeded"}');
      expect([await openAt("source"), await openAt("target")]).toEqual([2, 0]);

      // It comes back all the same.
      if (place !== "close") {
        await expect(moveAccount(cells.move(accountId))).rejects.toThrow("--cancel");
      }
      expect(await callOffMove(cells.move(accountId))).toBe(false);
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

  // The last one: to after the copy, and the source has forgotten one of those that it had copied.
  it.each(["analyses", "erasures", "open", "open, an old one forgotten"])(
    "and restored to the middle of the copy lacks what was erased here since, and sends nothing of it: %s",
    async (place) => {
      const { pool } = cells.source;
      await publish(pool, accountId, '{"id":"old","status":"succeeded","text":"canary"}');
      // Of an id that was published again since, the text stays.
      const again = { account_id: accountId, analysis_id: "1" };
      await insertRow(pool, "erasures", again);
      const onProgress = (part: MovePart, detail: string | null) => {
        if (place.startsWith(detail ?? part)) throw new Error("killed");
      };
      await expect(moveAccount(cells.move(accountId, { onProgress }))).rejects.toThrow("killed");
      await changeRows(pool, "moves", { account_id: accountId }, { step: "opening" });
      await eraseHere("old");
      const forgotten = { account_id: accountId, analysis_id: "forgotten" };
      if (place.endsWith("forgotten")) await insertRow(cells.target.pool, "erasures", forgotten);
      // The list of what was erased had been copied: it is copied once more.
      if (place === "open") await expect(moveAccount(cells.move(accountId))).rejects.toThrow("1 of 2 rows");
      await moveAccount(cells.move(accountId));
      expect(await tablesWith(cells.target.pool, "canary")).toEqual([]);
      expect(await openAt("target")).toBe(1);
      const erased = { account_id: accountId, analysis_id: "old" };
      expect(await countRows(cells.target.pool, "erasures", erased)).toBe(1);
      expect(await rowOf(cells.target.pool, "deliveries", erased)).toMatchObject({
        reason: "analysis_erased",
      });
      expect(await rowOf(cells.target.pool, "deliveries", again)).toMatchObject({ status: "pending" });
    },
  );

  it("and restored to the middle of the copy lacks what was forgotten here since", async () => {
    const { pool } = cells.source;
    const id = await publish(pool, accountId, '{"id":"old","status":"succeeded","text":"canary"}');
    const onProgress = (_: MovePart, table: string | null) => {
      if (table === "forgetting") throw new Error("killed");
    };
    await expect(moveAccount(cells.move(accountId, { onProgress }))).rejects.toThrow("killed");
    await changeRows(pool, "moves", { account_id: accountId }, { step: "done", ended_at: new Date() });
    const look = { delivery_id: id, account_id: accountId, look_at: new Date(0) };
    await insertRow(pool, "forgetting", look);
    await changeRows(pool, "deliveries", { id }, { status: "succeeded", attempts_count: 1 });
    const attempt = { delivery_id: id, account_id: accountId, run: 1, number: 1, outcome: "succeeded" };
    await insertRow(pool, "attempts", { ...attempt, started_at: new Date(0), ended_at: new Date(0) });
    await forgetDelivered(
      pool,
      async () => [],
      0,
      async () => new Set(),
    );
    expect(await tablesWith(pool, "canary")).toEqual([]);
    await moveAccount(cells.move(accountId));
    expect(await tablesWith(cells.target.pool, "canary")).toEqual([]);
    expect(await countRows(cells.target.pool, "erasures", { account_id: accountId })).toBe(0);
  });

  /** As a list of what was erased has it. */
  const eraseThere = (pool = cells.target.pool) =>
    eraseAccount({
      pool,
      accountId,
      name: null,
      waitMaxMs: patience(30_000),
      tooLong: (_, whom) => new Error(`waited for ${whom}`),
      eraseFromAreas: async () => ({ gone: 0, left: 0 }),
      onProgress: () => undefined,
    });

  it("and restored to the middle of the copy, of an account that was erased there, opens it nowhere", async () => {
    await kill("open");
    await changeRows(cells.source.pool, "moves", { account_id: accountId }, { step: "opening" });
    const erased = await eraseThere();
    expect(erased).toMatchObject({ outcome: "erased", cameFrom: ["c1"] });
    expect(await countRows(cells.target.pool, "bodies", { account_id: accountId })).toBe(0);
    await expect(callOffMove(cells.move(accountId))).rejects.toThrow("run the move again");
    await moveAccount(cells.move(accountId));
    await deleteMoved(cells.move(accountId).source, accountId);
    for (const { pool } of [cells.source, cells.target])
      for (const table of ["bodies", "open_deliveries", "signing_secrets"])
        expect(await countRows(pool, table, { account_id: accountId }), table).toBe(0);
    expect(await eraseThere()).toEqual(erased);
  });

  it("and restored to when the account was on its way back has it erased, too", async () => {
    await moveAccount(cells.move(accountId));
    const { source, target } = cells.move(accountId);
    await deleteMoved(source, accountId);
    const back = { source: target, target: source, targetName: "c1", sourceName: "c2" };
    await expect(moveAccount(cells.move(accountId, { ...back, ...killedAt("open") }))).rejects.toThrow(
      "killed",
    );
    const { pool } = cells.source;
    expect(await countRows(pool, "bodies", { account_id: accountId })).toBe(1);
    expect(await eraseThere(pool)).toMatchObject({ outcome: "erased", cameFrom: ["c2"] });
    for (const table of ["bodies", "parked_deliveries", "api_keys"])
      expect(await countRows(pool, table, { account_id: accountId }), table).toBe(0);
  });

  it("and restored as another database goes on once the source is told, as the document says", async () => {
    await kill("compare");
    await changeRows(cells.source.pool, "moves", { account_id: accountId }, { other_database: "1/1" });
    await expect(moveAccount(cells.move(accountId))).rejects.toThrow("whose database is not this target's");
    const document = await readFile(new URL("../../docs/scaling.md", import.meta.url), "utf8");
    const chapter = document.split("### Restored as another database\n")[1]!;
    const [asking, telling] = [...chapter.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, sql = ""]) => sql);
    const { identity } = (await cells.target.pool.query(asking!)).rows[0];
    await cells.source.pool.query(telling!.replace("IDENTITY", identity));
    await moveAccount(cells.move(accountId));
    expect([await openAt("source"), await openAt("target")]).toEqual([0, 1]);
  });

  it("sends nothing of what was erased while it was closed, once it is open here again", async () => {
    await kill("open");
    await eraseHere("1");
    await callOffMove(cells.move(accountId));
    expect(await openAt("source")).toBe(0);
  });

  it("what is erased here while the account is being opened there is erased there", async () => {
    const text = '{"id":"erased","status":"succeeded","text":"a word"}';
    await publish(cells.source.pool, accountId, text);
    await kill("open");
    const held = await begin(cells.target.pool, "select from sealpost.moves for update");
    const moving = moveAccount(cells.move(accountId));
    await untilSomebodyWaits(cells.target.pool);
    await eraseHere("erased");
    await held.rollback();
    await moving;
    expect(await tablesWith(cells.target.pool, "a word")).toEqual([]);
    expect(await countRows(cells.target.pool, "erasures", { analysis_id: "erased" })).toBe(1);
    expect(await openAt("target")).toBe(1);
    // Erased there as a whole it gets nothing back when the move is run again.
    await eraseThere();
    await moveAccount(cells.move(accountId));
    expect(await countRows(cells.target.pool, "erasures", { analysis_id: "erased" })).toBe(0);
  });
});
