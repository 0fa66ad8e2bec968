import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { accountExists } from "../../src/accounts/accounts-sql.ts";
import { idFloor } from "../../src/base/database/partitions.ts";
import { DAY_MS } from "../../src/base/model/time.ts";
import { type Erasure, eraseAccount } from "../../src/cells/erase-account.ts";
import { noteCertificates, noteEndpointNews } from "../../src/delivery/endpoint-health-sql.ts";
import { forgetErasures } from "../../src/delivery/erase-sql.ts";
import { endTurn, refuseUrl, rememberAnsweredLanes, takeTurn } from "../../src/delivery/receivers-sql.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import { listAccountPage } from "../../src/log/accounts-sql.ts";
import { addNotice } from "../../src/notices/notices-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptOf, claimOne, openDispatchPool, publishAt } from "../support/delivery-rows.ts";
import {
  begin,
  changeRows,
  countRows,
  createTestAccount,
  createTestKey,
  deleteRows,
  insertRow,
  leaveDetaching,
  makePartitionsFrom,
  publish,
  publishAny,
  publishMany,
  rowOf,
  rowsOf,
} from "../support/installation.ts";
import { patience } from "../support/time-limits.ts";

let database: TestDatabase;
let accountId: string;
beforeEach(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createTestAccount(database, "https://hooks.example.com/x"));
});
afterEach(() => database.drop());

const GOOD = '{"id":"a","status":"succeeded"}';

/** Erases it, without what areas have. */
const erase = (more: Partial<Erasure> = {}) =>
  eraseAccount({
    pool: database.pool,
    accountId,
    name: "test",
    waitMaxMs: patience(30_000),
    tooLong: (_, whom) => new Error(`waited for ${whom}`),
    eraseFromAreas: async () => ({ gone: 0, left: 0 }),
    onProgress: () => undefined,
    ...more,
  });

/** Tables of ours with rows that name the account. */
async function tablesWith(id: string): Promise<string[]> {
  const { rows } = await database.pool.query<{ name: string }>(
    `select relname as name from pg_class where relnamespace = 'sealpost'::regnamespace and relkind in ('r', 'p')
       and not relispartition order by 1`,
  );
  const found: string[] = [];
  for (const { name } of rows) {
    const { rowCount } = await database.pool.query(
      `select from sealpost.${name} as t where strpos(t::text, $1) > 0 limit 1`,
      [id],
    );
    if (rowCount === 1) found.push(name);
  }
  return found;
}

/** What says that it was erased. */
const KEPT = ["accounts", "audit_log", "erasures"];

describe("erasing an account", () => {
  it("leaves its id, the time, and a row of the audit log that names nobody", async () => {
    await createTestKey(database.pool, accountId);
    await publishAny(database.pool, accountId, 3);
    await sequenceEvents(database.pool, randomUUID(), 1_000);
    expect(await erase()).toMatchObject({ outcome: "erased", objectsLeft: 0 });
    expect(await tablesWith(accountId)).toEqual(KEPT);
    expect(await rowOf(database.pool, "accounts", { id: accountId })).toMatchObject({ name: "erased" });
    expect(await rowOf(database.pool, "audit_log", { account_id: accountId })).toMatchObject({
      operation_key: "accounts.erase",
      actor: "command_line",
      details: {},
    });
  });

  it("says the same again once it is complete, whatever name is given", async () => {
    const first = await erase();
    expect(await erase({ name: "other" })).toEqual(first);
    expect(await countRows(database.pool, "audit_log", { account_id: accountId })).toBe(1);
  });

  it("does nothing for another name, an unknown account, and one that has moved or is being moved", async () => {
    await publish(database.pool, accountId, GOOD);
    expect(await erase({ name: "tests" })).toEqual({ outcome: "other_name" });
    expect(await erase({ accountId: randomUUID() })).toEqual({ outcome: "unknown" });
    const move = { account_id: accountId, id: randomUUID(), direction: "out", other_cell: "c2" };
    await insertRow(database.pool, "moves", move);
    expect(await erase()).toEqual({ outcome: "moving" });
    await changeRows(database.pool, "accounts", { id: accountId }, { moved_to: "c2" });
    const done = { step: "done", ended_at: new Date() };
    await changeRows(database.pool, "moves", { account_id: accountId }, done);
    expect(await erase()).toEqual({ outcome: "left" });
    await changeRows(database.pool, "moves", { account_id: accountId }, { step: "deleted" });
    expect(await erase()).toEqual({ outcome: "moved" });
    expect(await countRows(database.pool, "deliveries", { account_id: accountId })).toBe(1);
    expect(await countRows(database.pool, "erasures")).toBe(0);
  });

  it("that was on its way here when the database was restored is for a list of what was erased", async () => {
    await publishAny(database.pool, accountId, 3);
    for (const table of ["open_deliveries", "endpoints", "signing_secrets"])
      await deleteRows(database.pool, table, { account_id: accountId });
    await deleteRows(database.pool, "accounts", { id: accountId });
    expect(await erase({ name: null })).toEqual({ outcome: "unknown" });
    for (const step of ["begun", "deleting"]) {
      const ended_at = step === "deleting" ? new Date() : null;
      const move = { account_id: accountId, id: randomUUID(), direction: "in", other_cell: "c1" };
      await insertRow(database.pool, "moves", { ...move, step, ended_at });
      expect(await erase()).toEqual({ outcome: "arriving" });
      expect(await countRows(database.pool, "moves")).toBe(1);
      if (step === "begun") await deleteRows(database.pool, "moves");
    }
    expect(await countRows(database.pool, "bodies")).toBe(3);
    for (const _ of ["once", "again"]) {
      expect(await erase({ name: null })).toMatchObject({ outcome: "erased", cameFrom: ["c1"] });
      expect(await tablesWith(accountId)).toEqual([...KEPT, "moves"]);
    }
    await publish(database.pool, accountId, GOOD);
    expect(await tablesWith(accountId)).toEqual([...KEPT, "moves"]);
  });

  it("stops its keys at once, and forgets it in lists, before anything of it is deleted", async () => {
    const { keyId } = await createTestKey(database.pool, accountId);
    await publish(database.pool, accountId, GOOD);
    const lines: string[] = [];
    const onProgress = (line: string) => {
      lines.push(line);
      if (lines.length === 2) throw new Error("killed");
    };
    await expect(erase({ onProgress })).rejects.toThrow("killed");
    expect(lines[1]).toBe("deleting: open_deliveries");
    expect(await rowOf(database.pool, "api_keys", { id: keyId })).toMatchObject({
      revoked_at: expect.any(Date),
    });
    expect(await accountExists(database.pool, accountId)).toBe(false);
    expect((await listAccountPage(database.pool, DAY_MS, null, null, 10)).items).toEqual([]);
    expect(await erase()).toMatchObject({ outcome: "erased" });
    expect(await tablesWith(accountId)).toEqual(KEPT);
  });

  it("leaves nothing of what another session's open transaction has published to it", async () => {
    const other = await begin(database.pool);
    await publish(other.client, accountId, GOOD);
    const waits = Promise.withResolvers<void>();
    const onProgress = (line: string) => {
      if (line.includes("a transaction that was open before")) waits.resolve();
    };
    const erasing = erase({ onProgress });
    await Promise.race([waits.promise, erasing]);
    await other.commit();
    expect(await erasing).toMatchObject({ outcome: "erased" });
    expect(await tablesWith(accountId)).toEqual(KEPT);
  });

  it("leaves nothing in a day that a snapshot has kept from being dropped, nor if it was erased before", async () => {
    const { pool } = database;
    await makePartitionsFrom(pool, "2020-01-01", 2);
    for (const day of ["2020-01-01", "2020-01-02"]) await publishAt(pool, accountId, new Date(day), [day]);
    await pool.query("alter table sealpost.bodies detach partition sealpost.bodies_20200101 concurrently");
    await (await leaveDetaching(pool, "bodies_20200102")).rollback();
    expect(await tablesWith(accountId)).toContain("bodies_20200101");
    const inDays = async () => {
      const one = "select account_id from sealpost.bodies_2020010";
      return (await pool.query(`${one}1 union all ${one}2`)).rowCount;
    };
    expect([await inDays(), (await erase()).outcome, await inDays()]).toEqual([2, "erased", 0]);
    const row = {
      account_id: accountId,
      delivery_id: idFloor(Date.parse("2020-01-01")),
      event: "e",
      analysis: "{}",
    };
    await insertRow(pool, "bodies_20200101", row);
    expect([await inDays(), (await erase()).outcome, await inDays()]).toEqual([1, "erased", 0]);
  });

  it.each(["test", "erased"])(
    "that waits too long says for whom, and goes on when run again: %s",
    async (name) => {
      await changeRows(database.pool, "accounts", { id: accountId }, { name });
      const other = await begin(database.pool);
      await publish(other.client, accountId, GOOD);
      for (const given of [name, null, null]) {
        const waiting = erase({ name: given, waitMaxMs: 100 });
        await expect(waiting).rejects.toThrow(/waited for a transaction .*pid \d+/);
      }
      await other.commit();
      expect(await erase({ name: null })).toMatchObject({ outcome: "erased" });
      expect(await tablesWith(accountId)).toEqual(KEPT);
    },
  );

  it("ends attempts: what one comes to, and what a process has in memory, is not written down", async () => {
    const { pool } = database;
    await using resources = new AsyncDisposableStack();
    const dispatchPool = openDispatchPool(database);
    resources.defer(() => dispatchPool.end());
    const leased = await claimOne(dispatchPool, await publish(pool, accountId, GOOD));
    await erase();
    const url = "https://hooks.example.com/x";
    const { origin } = new URL(url);
    const recording = attemptOf(leased, { status: "succeeded" });
    expect(await recordOutcomes(dispatchPool, [recording])).toEqual(new Set());
    await noteCertificates(pool, [{ accountId, host: "hooks.example.com", expiresAtMs: 1e12 }]);
    const failed = { failingSinceMs: 1, failedAttempts: 1, abandoned: 0, errorCode: "status_500" } as const;
    await noteEndpointNews(pool, [{ accountId, url, succeededAtMs: null, ...failed }]);
    await rememberAnsweredLanes(pool, [{ accountId, lane: "1", isSuspended: false }]);
    await refuseUrl(pool, accountId, url);
    const asked = { accountId, origin, address: "192.0.2.1", leaseMs: 1_000 };
    const turn = await takeTurn(pool, { ...asked, isFirst: true, isFurther: false });
    expect(turn).toEqual({ isProven: false, waitMs: 1_000 });
    await endTurn(pool, accountId, url, true);
    const details = { rotated_at: "", expires_at: "" };
    expect(await addNotice(pool, { accountId, kind: "secret.expiring", subject: "s", details })).toBe(false);
    expect(await tablesWith(accountId)).toEqual(KEPT);
  });
});

describe("publishing to an erased account", () => {
  beforeEach(() => erase());

  it("gives the same id each time, and stores nothing", async () => {
    const id = await publish(database.pool, accountId, GOOD);
    expect(id).toMatch(/^[0-9a-f-]{36}$/);
    expect(await publish(database.pool, accountId, GOOD)).toBe(id);
    // Even with another text, or a URL of its own.
    const other = '{"id":"a","status":"failed","n":1}';
    expect(await publish(database.pool, accountId, other, "https://own.example.com/")).toBe(id);
    expect(await publish(database.pool, accountId, '{"id":"b","status":"failed"}')).not.toBe(id);
    expect(await tablesWith(accountId)).toEqual(KEPT);
  });

  it("in one call with others leaves theirs as they would be", async () => {
    const { accountId: otherId } = await createTestAccount(database, "https://hooks.example.com/y");
    const twice = [accountId, otherId, accountId, otherId];
    const ids = await publishMany(
      database.pool,
      twice,
      twice.map(() => GOOD),
      twice.map(() => null),
    );
    expect(ids[0]).toBe(ids[2]);
    expect(ids[1]).toBe(ids[3]);
    const { delivery_id } = await rowOf(database.pool, "open_deliveries");
    expect(delivery_id).toBe(ids[1]);
    expect(await tablesWith(accountId)).toEqual(KEPT);
  });

  it("judges it as any other: an analysis or a URL that is none is refused", async () => {
    await expect(publish(database.pool, accountId, '{"id":"a"}')).rejects.toMatchObject({ code: "SP002" });
    const inside = "https://10.0.0.1/";
    await expect(publish(database.pool, accountId, GOOD, inside)).rejects.toMatchObject({ code: "SP004" });
  });

  it("is not refused because the account was full", async () => {
    const { accountId: fullId } = await createTestAccount(database);
    await changeRows(database.pool, "accounts", { id: fullId }, { is_full: true });
    await expect(publish(database.pool, fullId, GOOD)).rejects.toMatchObject({ code: "SP008" });
    await erase({ accountId: fullId });
    expect(await publish(database.pool, fullId, GOOD)).toMatch(/^[0-9a-f-]{36}$/);
  });
});

it("keeps what says that an analysis was erased as long as the log, and of an account for good", async () => {
  const old = { erased_at: new Date(Date.now() - 31 * DAY_MS) };
  await insertRow(database.pool, "erasures", { account_id: accountId, analysis_id: "old", ...old });
  const unknown = { account_id: accountId, id: "old", delivery_id: randomUUID(), digest: Buffer.alloc(0) };
  await insertRow(database.pool, "analyses", unknown);
  await insertRow(database.pool, "erasures", { account_id: accountId, analysis_id: "new" });
  await insertRow(database.pool, "erasures", { account_id: accountId, ...old });
  expect(await forgetErasures(database.pool, 30 * DAY_MS)).toBe(1);
  expect(await rowsOf(database.pool, "analyses", { id: "old" })).toEqual([]);
  expect((await rowsOf(database.pool, "erasures")).map(({ analysis_id }) => analysis_id).sort()).toEqual([
    "new",
    null,
  ]);
});
