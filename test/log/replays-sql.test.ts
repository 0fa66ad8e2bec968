import type { ClientBase } from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { findDelivery } from "../../src/log/deliveries-sql.ts";
import type { DeliveryFilter } from "../../src/log/delivery-filter-api.ts";
import { countReplayable } from "../../src/log/replay-set-sql.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import {
  cancelReplay,
  createReplay,
  findReplay,
  listReplays,
  replayDelivery,
  type StoredReplay,
} from "../../src/log/replays-sql.ts";
import { publishAt } from "../support/delivery-rows.ts";
import {
  changeRows,
  deleteRows,
  forgetOpen,
  insertAccount,
  publish,
  publishMany,
  rowOf,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { countJobs } from "../support/wakeup-jobs.ts";

const RETENTION_MS = 7 * 86_400_000;
const database = await openDatabase();
let accountId: string;
let serial = 0;

beforeEach(async () => {
  accountId = await insertAccount(database.pool);
});

const LIMITS = { runningMax: 100, waitingMax: 1_000_000 };

function make(
  client: ClientBase,
  filter: DeliveryFilter,
  ratePerSecond: number,
  analysisRetentionMs: number,
): Promise<StoredReplay> {
  const unasked = { note: null, expectedMatched: null, createdBy: COMMAND_LINE };
  const asNew = { ...unasked, filter, ratePerSecond, analysisRetentionMs, limits: LIMITS };
  return createReplay(client, wholeAccount(accountId), asNew) as Promise<StoredReplay>;
}

/** Without a target a delivery is abandoned at once. */
async function abandoned(): Promise<string> {
  return await publish(database.pool, accountId, `{"id":"r-${++serial}","status":"succeeded"}`);
}

/** With a target it waits for its attempt. */
async function open(): Promise<string> {
  const text = `{"id":"r-${++serial}","status":"failed"}`;
  return await publish(database.pool, accountId, text, "https://a.example.com/");
}

async function openRow(id: string) {
  const { rows } = await database.pool.query(
    "select run, attempts_in_run, due_at <= now() as is_due, lease_token from sealpost.open_deliveries " +
      "where delivery_id = $1",
    [id],
  );
  return rows[0];
}

describe("replaying one delivery", () => {
  it("starts the next run of what was abandoned, and wakes it", async () => {
    const id = await abandoned();
    const before = await countJobs(database.pool);
    expect(await replayDelivery(database.pool, wholeAccount(accountId), id, RETENTION_MS)).toBe("replayed");
    expect(await openRow(id)).toEqual({ run: 2, attempts_in_run: 0, is_due: true, lease_token: null });
    const found = await findDelivery(database.pool, wholeAccount(accountId), id);
    expect(found?.delivery).toMatchObject({ status: "pending", reason: null, run: 2, in_flight: false });
    expect(await countJobs(database.pool)).toBe(before + 1);
  });

  it("refuses what is pending, succeeded, expired, unknown or somebody else's", async () => {
    const id = await abandoned();
    await replayDelivery(database.pool, wholeAccount(accountId), id, RETENTION_MS);
    expect(await replayDelivery(database.pool, wholeAccount(accountId), id, RETENTION_MS)).toBe(
      "not_replayable",
    );
    expect(await replayDelivery(database.pool, wholeAccount(accountId), await abandoned(), 0)).toBe(
      "expired",
    );
    const other = await insertAccount(database.pool);
    expect(await replayDelivery(database.pool, wholeAccount(other), id, RETENTION_MS)).toBe("not_found");
    expect(
      await replayDelivery(database.pool, wholeAccount(accountId), crypto.randomUUID(), RETENTION_MS),
    ).toBe("not_found");
  });

  it("leaves no lock on the row of what somebody else has replayed at the same time", async () => {
    const id = await open();
    await changeRows(database.pool, "deliveries", { id }, { status: "failed" });
    const [first, second] = await Promise.all([database.pool.connect(), database.pool.connect()]);
    try {
      await first.query("begin");
      await second.query("begin");
      expect(await replayDelivery(first, wholeAccount(accountId), id, RETENTION_MS)).toBe("replayed");
      const late = replayDelivery(second, wholeAccount(accountId), id, RETENTION_MS);
      await untilSomebodyWaits(database.pool);
      await first.query("commit");
      expect(await late).toBe("not_replayable");
      // As a claim looks for it.
      const { rowCount } = await database.pool.query(
        "select from sealpost.open_deliveries where delivery_id = $1 for update skip locked",
        [id],
      );
      expect(rowCount).toBe(1);
    } finally {
      await second.query("rollback");
      first.release();
      second.release();
    }
  });

  it("leaves an attempt that is under way its lease", async () => {
    const id = await open();
    const token = crypto.randomUUID();
    const lease = {
      lease_token: token,
      lease_until: new Date(Date.now() + 20_000),
      lease_run: 1,
      lease_number: 2,
    };
    await changeRows(database.pool, "open_deliveries", { delivery_id: id }, { ...lease, attempts_in_run: 1 });
    await changeRows(database.pool, "deliveries", { id }, { status: "failed" });
    expect(await replayDelivery(database.pool, wholeAccount(accountId), id, RETENTION_MS)).toBe("replayed");
    expect(await openRow(id)).toEqual({ run: 2, attempts_in_run: 0, is_due: true, lease_token: token });
    const found = await findDelivery(database.pool, wholeAccount(accountId), id);
    expect(found?.delivery).toMatchObject({ run: 2, in_flight: true, waits_for_earlier_run: true });
  });

  it("neither waits for nor locks a row that is somebody else's", async () => {
    const id = await open();
    const other = await insertAccount(database.pool);
    await inTransaction(database.pool, async (owner) => {
      await owner.query("select from sealpost.open_deliveries where delivery_id = $1 for update", [id]);
      expect(await replayDelivery(database.pool, wholeAccount(other), id, RETENTION_MS)).toBe("not_found");
    });
    await inTransaction(database.pool, async (stranger) => {
      expect(await replayDelivery(stranger, wholeAccount(other), id, RETENTION_MS)).toBe("not_found");
      const { rowCount } = await database.pool.query(
        "select from sealpost.open_deliveries where delivery_id = $1 for update skip locked",
        [id],
      );
      expect(rowCount).toBe(1);
    });
  });
});

/** Other replays have their turns, too. */
async function untilCounted(replayId: string, fromMs: number): Promise<void> {
  const countAt = async () => {
    const { rows } = await database.pool.query("select count_at from sealpost.replays where id = $1", [
      replayId,
    ]);
    return (rows[0].count_at as Date | null)?.getTime() ?? Number.POSITIVE_INFINITY;
  };
  for (let ms = fromMs; (await countAt()) <= fromMs; ms++) {
    expect(ms).toBeLessThan(fromMs + 200);
    await advanceReplays(database.pool, RETENTION_MS, new Date(ms));
  }
}

describe("replaying many", () => {
  it("fixes its set, keeps its pace, counts what it did, and ends", async () => {
    const ids = [await abandoned(), await abandoned(), await abandoned(), await abandoned()];
    const filter = { status: "abandoned" } as const;
    expect(await countReplayable(database.pool, wholeAccount(accountId), filter, RETENTION_MS)).toBe(4);
    const replay = await inTransaction(database.pool, (client) => make(client, filter, 2, RETENTION_MS));
    expect(replay).toMatchObject({
      status: "running",
      matched: 4,
      replayed: 0,
      filter: { status: "abandoned" },
    });
    await abandoned();
    await replayDelivery(database.pool, wholeAccount(accountId), ids[3]!, RETENTION_MS);

    const begun = Date.parse(replay!.created_at);
    const advance = (ms: number) => advanceReplays(database.pool, RETENTION_MS, new Date(begun + ms));
    expect(await advance(400)).toBe(0);
    expect(await advance(1_100)).toBe(2);
    expect(await advance(1_200)).toBe(0);
    expect(await advance(2_100)).toBe(2);
    expect(await findReplay(database.pool, wholeAccount(accountId), replay!.id)).toMatchObject({
      replayed: 3,
      skipped: 1,
      status: "delivering",
      ended_at: null,
    });
    await forgetOpen(database.pool, ids);
    await untilCounted(replay.id, begun + 10_000);
    const ended = await findReplay(database.pool, wholeAccount(accountId), replay!.id);
    expect(ended).toMatchObject({
      status: "done",
      matched: 4,
      replayed: 3,
      skipped: 1,
      succeeded: 0,
      failed: 0,
    });
    expect(ended!.ended_at).not.toBeNull();
  });

  it("takes nothing whose analysis is not kept any more", async () => {
    const aSecondAgo = new Date(Date.now() - 1_000);
    await publishAt(database.pool, accountId, aSecondAgo, [`r-${++serial}`]);
    const start = (retentionMs: number) =>
      inTransaction(database.pool, (client) => make(client, {}, 1, retentionMs));
    expect(await countReplayable(database.pool, wholeAccount(accountId), {}, 0)).toBe(0);
    expect(await start(0)).toMatchObject({ status: "done", matched: 0 });
    const kept = await start(RETENTION_MS);
    expect(kept).toMatchObject({ status: "running", matched: 1 });
    await cancelReplay(database.pool, wholeAccount(accountId), kept!.id);
  });

  it("does not make up for lost time all at once", async () => {
    for (let i = 0; i < 30; i++) await abandoned();
    const replay = await inTransaction(database.pool, (client) => make(client, {}, 10, RETENTION_MS));
    const later = new Date(Date.parse(replay!.created_at) + 3_600_000);
    expect(await advanceReplays(database.pool, RETENTION_MS, later)).toBe(20);
  });

  it("takes no more than 1,000 in a step, and those of one account in turn", async () => {
    await deleteRows(database.pool, "replays");
    const texts = Array.from({ length: 600 }, () => `{"id":"r-${++serial}","status":"failed"}`);
    const accounts = texts.map(() => accountId);
    const none = texts.map(() => null);
    await publishMany(database.pool, accounts, texts, none);
    const start = () => inTransaction(database.pool, (client) => make(client, {}, 1_000, RETENTION_MS));
    const [first, second] = [await start(), await start()];
    const pacedAt = new Date(Date.parse(second!.created_at) - 3_600_000);
    await changeRows(database.pool, "replays", { id: second!.id }, { paced_at: pacedAt });
    const at = new Date(Date.parse(second!.created_at) + 60_000);
    const advance = async () => {
      const taken = await advanceReplays(database.pool, RETENTION_MS, at);
      const shown = await Promise.all(
        [first, second].map((one) => findReplay(database.pool, wholeAccount(accountId), one!.id)),
      );
      return [taken, ...shown.map((one) => one!.replayed + one!.skipped)];
    };
    expect(await advance()).toEqual([1_000, 500, 500]);
    expect(await advance()).toEqual([200, 600, 600]);
  });

  it("stops when it is cancelled, and tells nobody else's replays", async () => {
    await abandoned();
    await abandoned();
    const replay = await inTransaction(database.pool, (client) => make(client, {}, 1, RETENTION_MS));
    await advanceReplays(database.pool, RETENTION_MS, new Date(Date.parse(replay!.created_at) + 1_001));
    expect(await cancelReplay(database.pool, wholeAccount(accountId), replay!.id)).toMatchObject({
      status: "cancelled",
      replayed: 1,
    });
    expect(
      await advanceReplays(database.pool, RETENTION_MS, new Date(Date.parse(replay!.created_at) + 9_000)),
    ).toBe(0);
    const other = await insertAccount(database.pool);
    expect(await cancelReplay(database.pool, wholeAccount(other), replay!.id)).toBeNull();
    expect(await listReplays(database.pool, wholeAccount(other), null, 50)).toEqual({
      items: [],
      next: null,
      total: 0,
    });
    expect(
      (await listReplays(database.pool, wholeAccount(accountId), null, 50)).items.map(({ id }) => id),
    ).toEqual([replay!.id]);
  });

  it("is listed by what was last counted, without reading an item, and counted again by and by", async () => {
    const ids = [await abandoned(), await abandoned(), await abandoned()];
    const replay = await inTransaction(database.pool, (client) => make(client, {}, 1_000, RETENTION_MS));
    const begun = Date.parse(replay!.created_at);
    const step = (ms: number) => advanceReplays(database.pool, RETENTION_MS, new Date(begun + ms));
    const listed = async () => (await listReplays(database.pool, wholeAccount(accountId), null, 50)).items[0];
    await step(100);
    expect(await listed()).toMatchObject({ replayed: 3, skipped: 0, succeeded: 0, failed: 0 });
    const setStatus = (of: readonly string[], status: string) =>
      changeRows(database.pool, "deliveries", { id: of }, { status });
    await setStatus(ids.slice(0, 2), "succeeded");
    await changeRows(
      database.pool,
      "deliveries",
      { id: ids[2] },
      { status: "failed", last_error_code: "tls_expired" },
    );
    const found = () => findReplay(database.pool, wholeAccount(accountId), replay!.id);
    const causes = [{ error_code: "tls_expired", deliveries: 1 }];
    const failing = { succeeded: 2, failed: 0, failing: 1, failing_causes: causes };
    expect(await found(), "it has an attempt to come").toMatchObject(failing);
    expect(await listed(), "not counted yet").toMatchObject({ failing: 0, failing_causes: [] });
    await untilCounted(replay.id, begun + 6_000);
    expect(await listed()).toMatchObject(failing);
    await changeRows(
      database.pool,
      "deliveries",
      { id: ids[2] },
      { status: "abandoned", reason: "no_target" },
    );
    expect(await found()).toMatchObject({ succeeded: 2, failed: 1 });
    const setReplayed = (count: number) =>
      changeRows(database.pool, "replays", { id: replay!.id }, { replayed: count });
    await setReplayed(5_001);
    expect(await found(), "too many to be counted for a reader").toMatchObject(failing);
    await setReplayed(3);
    await untilCounted(replay.id, begun + 12_000);
    expect(await listed()).toMatchObject({
      replayed: 3,
      succeeded: 2,
      failing: 0,
      failed: 1,
      status: "delivering",
    });
    await changeRows(database.pool, "deliveries", { id: ids[2] }, { status: "succeeded", reason: null });
    await forgetOpen(database.pool, ids);
    await untilCounted(replay.id, begun + 20_000);
    expect(await listed()).toMatchObject({ succeeded: 3, status: "done" });
    expect(await rowOf(database.pool, "replays", { id: replay.id })).toMatchObject({ count_at: null });

    const asked: { text: string; values: unknown[] }[] = [];
    const seen = {
      query: async (query: (typeof asked)[number]) => {
        asked.push(query);
        return await database.pool.query(query);
      },
    };
    await listReplays(seen as unknown as typeof database.pool, wholeAccount(accountId), null, 50);
    expect(asked).toHaveLength(1);
    const { text, values } = asked[0]!;
    const plan = await database.pool.query(`explain ${text}`, values);
    expect(JSON.stringify(plan.rows)).not.toContain("replay_items");
  });

  it("goes on replaying though what it did can never be counted in time", async () => {
    for (let i = 0; i < 3; i++) await abandoned();
    const replay = await inTransaction(database.pool, (client) => make(client, {}, 1, RETENTION_MS));
    const { rows } = await database.pool.query<{ definition: string }>(
      "select pg_get_functiondef('sealpost.replay_standing'::regproc) as definition",
    );
    await database.pool.query(
      `create or replace function sealpost.replay_standing(
         of_replay uuid, of_account uuid, out succeeded integer, out failed integer, out failing integer,
         out failing_causes json)
       language sql stable as $$select 1 / 0, 1, 1, '[]'::json$$`,
    );
    await changeRows(database.pool, "replays", { id: replay!.id }, { count_at: new Date("2020-01-01") });
    // An error is told before its locks are given back: on one connection the next step comes after that.
    const client = await database.pool.connect();
    const step = (ms: number) =>
      advanceReplays(client, RETENTION_MS, new Date(Date.parse(replay!.created_at) + ms));
    await expect(step(1_001)).rejects.toThrow("division by zero");
    expect(await step(2_001), "its next count is later, and does not keep others from theirs").toBe(1);
    await expect(step(7_002)).rejects.toThrow("division by zero");
    client.release();
    await database.pool.query(rows[0]!.definition);
    expect(await findReplay(database.pool, wholeAccount(accountId), replay!.id)).toMatchObject({
      replayed: 3,
    });
  });

  it("is done at once when nothing matches, and takes no turn to be counted", async () => {
    const replay = await inTransaction(database.pool, (client) => make(client, {}, 1, RETENTION_MS));
    expect(replay).toMatchObject({ status: "done", matched: 0 });
    expect(await rowOf(database.pool, "replays", { id: replay.id })).toMatchObject({ count_at: null });
  });
});
