import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { replayDelivery } from "../../src/log/replays-sql.ts";
import {
  attemptOf,
  attemptRows,
  claim,
  claimOne,
  deliveryRow,
  LEASE_MS,
  openDispatchPool,
  openRow,
  publishAt,
} from "../support/delivery-rows.ts";
import { flushStatistics, insertAccount, insertRow, rowsOf } from "../support/installation.ts";
import { openForDispatch } from "../support/open.ts";

const { database, pool } = await openForDispatch();
let accountId: string;
let published = 0;

beforeEach(async () => {
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});

/** A whole millisecond: what a Date can say of a moment that PostgreSQL knows by the microsecond. */
const T0 = new Date(Date.now() - (Date.now() % 1000));
const later = (ms: number) => new Date(T0.getTime() + ms);
const publishOne = async (at = T0) => (await publishAt(pool, accountId, at, [`c-${published++}`]))[0]!;
const kinds = async (...given: Parameters<typeof claim>) =>
  (await claim(...given)).deliveries.map((delivery) => delivery.kind);

describe("a lease", () => {
  it("returns all that an attempt needs", async () => {
    const text = '{"id":"c-all" , "status":"failed","n":1e400}';
    const [id] = await publishAt(pool, accountId, T0, [text], "https://hooks.example.com/x");
    await insertRow(database.pool, "signing_secrets", { account_id: accountId, sealed: Buffer.from([1, 2]) });
    const token = randomUUID();
    const { deliveries, databaseNowMs } = await claim(pool, [id!], { at: later(7), leaseToken: token });
    expect(databaseNowMs).toBe(later(7).getTime());
    expect(deliveries).toEqual([
      {
        kind: "leased",
        deliveryId: id,
        accountId,
        lane: expect.stringMatching(/^-?\d+$/),
        leaseToken: token,
        run: 1,
        number: 1,
        runStartedAtMs: later(7).getTime(),
        dueAtMs: T0.getTime(),
        provenAtMs: null,
        provenSinceMs: null,
        isRefused: false,
        wasInterrupted: false,
        wasInterruptedInQuarantine: false,
        createdAtMs: T0.getTime(),
        event: "analysis.failed",
        webhookUrl: "https://hooks.example.com/x",
        endpointUrl: "https://receiver.example.com/",
        analysisText: text,
        bodyBytes: Buffer.byteLength(text),
        traceparent: null,
        sealedSecrets: [expect.stringMatching(/^[0-9a-f-]{36}:AQI=$/)],
        signsStandard: false,
        sealedHeaders: null,
      },
    ]);
  });

  it("looks up whether its receiver is proven by account and origin", async () => {
    const url = "https://shared.example.com/in";
    const ids: string[] = [];
    for (let n = 0; n < 20; n++) {
      const account_id = await insertAccount(database.pool, url);
      const receiver = {
        account_id,
        origin: new URL(url).origin,
        proven_at: n === 0 ? later(-31 * 86_400_000) : T0,
      };
      await insertRow(database.pool, "receivers", receiver);
      ids.push(...(await publishAt(pool, account_id, T0, [`c-${published++}`])));
    }
    const read = async () => {
      await flushStatistics(pool, database.pool);
      const { rows } = await database.pool.query<{ n: number }>(
        `select idx_tup_read::integer as n from pg_stat_user_indexes where indexrelname = 'receivers_pkey'`,
      );
      return rows[0]!.n;
    };
    const before = await read();
    const { deliveries } = await claim(pool, ids, { at: later(1) });
    const proven = deliveries.filter((one) => one.kind === "leased" && one.provenAtMs !== null);
    expect(proven, "one proof is 31 days old").toHaveLength(19);
    expect((await read()) - before).toBe(20);
  });

  it("is given to one of many who ask at once", async () => {
    const ids = await publishAt(
      pool,
      accountId,
      T0,
      Array.from({ length: 40 }, () => `c-${published++}`),
    );
    const claims = await Promise.all(Array.from({ length: 8 }, () => claim(pool, ids, { at: later(1) })));
    const leased = claims.flatMap(({ deliveries }) => deliveries.map((delivery) => delivery.deliveryId));
    expect(leased.sort()).toEqual([...ids].sort());
  });

  it("is not given before the delivery is due, and is at that very moment", async () => {
    const id = await publishOne(later(1_000));
    expect(await kinds(pool, [id], { at: later(999) })).toEqual([]);
    expect(await kinds(pool, [id], { at: later(1_000) })).toEqual(["leased"]);
  });

  it("is nobody else's until it ends, and is at that very moment", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    expect(await kinds(pool, [id], { at: later(LEASE_MS - 1) })).toEqual([]);
    expect(await kinds(pool, [id], { at: later(LEASE_MS) })).toEqual(["leased"]);
  });

  it("of an ended or unknown delivery does not come back", async () => {
    const id = await publishOne();
    const delivery = await claimOne(pool, id, { at: T0 });
    await recordOutcomes(pool, [attemptOf(delivery, { status: "succeeded" })]);
    expect(await claim(pool, [id, randomUUID()], { at: later(1) })).toEqual({
      deliveries: [],
      databaseNowMs: null,
    });
  });

  it("is asked for in vain for an id of a day that no calendar here has", async () => {
    const last = ["ffffffff-ffff-7fff-bfff-ffffffffffff", "e677d21f-dbff-7fff-bfff-ffffffffffff"];
    expect((await claim(pool, last, { at: T0 })).deliveries).toEqual([]);
  });

  it("skips what a replay or a promoter has locked, rather than wait for it", async () => {
    const [locked, free] = [await publishOne(), await publishOne()];
    const client = await database.pool.connect();
    await client.query("begin");
    await client.query("select from sealpost.open_deliveries where delivery_id = $1 for update", [locked]);
    const { deliveries } = await claim(pool, [locked, free], { at: T0 });
    await client.query("rollback");
    client.release();
    expect(deliveries.map((delivery) => delivery.deliveryId)).toEqual([free]);
  });

  it("keeps the start of the run through all of its attempts", async () => {
    const id = await publishOne();
    const first = await claimOne(pool, id, { at: later(5) });
    await recordOutcomes(pool, [attemptOf(first, { status: "failed", dueAtMs: later(100).getTime() })]);
    const second = await claimOne(pool, id, { at: later(200) });
    expect(second).toMatchObject({ number: 2, runStartedAtMs: later(5).getTime() });
  });

  it("is without a number when the attempts of the run are used up", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0, attemptsMax: 1 });
    const last = await claimOne(pool, id, { at: later(LEASE_MS), attemptsMax: 1 });
    expect(last).toMatchObject({ number: null, wasInterrupted: true });
    // That lease stood for no attempt: when it runs out too, there is nothing to write down.
    const again = await claimOne(pool, id, { at: later(2 * LEASE_MS), attemptsMax: 1 });
    expect(again).toMatchObject({ number: null, wasInterrupted: false });
    expect(await attemptRows(pool, id)).toHaveLength(1);
  });

  it("comes back to whoever asks again with the same token, its answer having been lost", async () => {
    const [first, second] = [await publishOne(), await publishOne()];
    const leaseToken = randomUUID();
    const lost = await claim(pool, [first, second], { at: T0, leaseToken });
    expect((await claim(pool, [first], { at: later(50) })).deliveries, "nobody else's").toEqual([]);
    const again = await claim(pool, [first, second], { at: later(100), leaseToken });
    expect(again.deliveries).toEqual(lost.deliveries);
    expect((await openRow(pool, first))!.lease_until).toEqual(later(100 + LEASE_MS));
    expect(await attemptRows(pool, first)).toEqual([]);
    expect(await claimOne(pool, first, { at: later(100 + LEASE_MS) })).toMatchObject({
      number: 2,
      wasInterrupted: true,
    });
  });

  it("comes back so though an older one, which was somebody else's, takes the bytes now", async () => {
    const [older, own] = [await publishOne(), await publishOne()].toSorted() as [string, string];
    const [leaseToken, bytesMax] = [randomUUID(), 1];
    await claimOne(pool, older, { at: T0 });
    expect(await kinds(pool, [older, own], { at: later(1), leaseToken, bytesMax })).toEqual(["leased"]);
    const again = await claim(pool, [older, own], { at: later(LEASE_MS), leaseToken, bytesMax });
    const found = again.deliveries.map(({ kind, deliveryId }) => `${deliveryId} ${kind}`);
    expect(found.toSorted()).toEqual([`${older} left`, `${own} leased`]);
  });

  it("for going alone comes back in the same way, and as that", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    await claimOne(pool, id, { at: later(LEASE_MS) });
    const options = { at: later(2 * LEASE_MS), isInQuarantine: true, leaseToken: randomUUID() };
    const lost = await claimOne(pool, id, options);
    expect(await claimOne(pool, id, options)).toEqual({ ...lost, wasInterrupted: false });
    expect(await openRow(pool, id)).toMatchObject({ lease_alone: true, lease_number: 3, interruptions: 2 });
  });

  it("stays HOT as long as the promoter need not look sooner", async () => {
    const own = openDispatchPool(database);
    const stats = async () => {
      await flushStatistics(own, database.pool);
      const { rows } = await database.pool.query<{ updates: string; hot: string }>(
        `select n_tup_upd as updates, n_tup_hot_upd as hot from pg_stat_user_tables
         where schemaname = 'sealpost' and relname = 'open_deliveries'`,
      );
      return { updates: Number(rows[0]!.updates), hot: Number(rows[0]!.hot) };
    };
    const before = await stats();
    const ids = await publishAt(
      own,
      accountId,
      T0,
      Array.from({ length: 20 }, () => `c-${published++}`),
    );
    await claim(own, ids, { at: later(10), leaseMs: 20_000 });
    const after = await stats();
    await own.end();
    expect([after.updates - before.updates, after.hot - before.hot]).toEqual([20, 20]);
  });
});

describe("how much a claim takes", () => {
  const big = (id: string, bytes: number) => `{"id":"${id}","status":"succeeded","x":"${"x".repeat(bytes)}"}`;

  it("is bounded in bytes; what is left stays as it was", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 4; n++) {
      ids.push(...(await publishAt(pool, accountId, later(n), [big(`c-${published++}`, 1_000)])));
    }
    const before = await openRow(pool, ids[3]!);
    const { deliveries } = await claim(pool, ids, { at: later(10), bytesMax: 2_200 });
    expect(Object.fromEntries(deliveries.map((one) => [one.deliveryId, one.kind]))).toEqual({
      [ids[0]!]: "leased",
      [ids[1]!]: "leased",
      [ids[2]!]: "left",
      [ids[3]!]: "left",
    });
    expect(await openRow(pool, ids[3]!)).toEqual(before);
    expect(await kinds(pool, ids, { at: later(10) })).toEqual(["leased", "leased"]);
  });

  it("is at least one, however big that is", async () => {
    const [id] = await publishAt(pool, accountId, T0, [big(`c-${published++}`, 5_000)]);
    expect(await kinds(pool, [id!], { at: T0, bytesMax: 1 })).toEqual(["leased"]);
  });

  it("writes down every interruption that it finds, and takes what the bytes leave room for", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 2; n++) {
      ids.push(...(await publishAt(pool, accountId, later(n), [big(`c-${published++}`, 1_000)])));
    }
    await claim(pool, ids, { at: later(10) });
    expect(await kinds(pool, ids, { at: later(LEASE_MS + 10), bytesMax: 1 })).toEqual(["leased", "left"]);
    for (const id of ids) expect(await attemptRows(pool, id)).toHaveLength(1);
    expect(await claimOne(pool, ids[1]!, { at: later(LEASE_MS + 11) })).toMatchObject({ number: 2 });
  });
});

describe("an attempt whose dispatcher died", () => {
  it("is written down by the claim that finds its lease expired", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    const next = await claimOne(pool, id, { at: later(LEASE_MS + 500) });
    expect(next).toMatchObject({
      run: 1,
      number: 2,
      wasInterrupted: true,
      wasInterruptedInQuarantine: false,
    });
    const rows = await rowsOf(pool, "attempts", { delivery_id: id });
    expect(rows).toMatchObject([
      {
        run: 1,
        number: 1,
        outcome: "interrupted",
        error_code: "interrupted",
        status_code: null,
        target_url: null,
      },
    ]);
    expect(rows[0]!.started_at).toEqual(T0);
    expect(rows[0]!.ended_at).toEqual(later(LEASE_MS));
    expect(await deliveryRow(pool, id)).toMatchObject({
      status: "failed",
      attempts_count: 1,
      last_error_code: "interrupted",
    });
    expect(await openRow(pool, id)).toMatchObject({ attempts_in_run: 1, interruptions: 1 });
  });

  it("must be repeated alone the second time in a row, and not in a crowd", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    await claimOne(pool, id, { at: later(LEASE_MS) });
    expect(await kinds(pool, [id], { at: later(2 * LEASE_MS) })).toEqual(["must_be_quarantined"]);
    expect(await openRow(pool, id)).toMatchObject({
      lease_token: null,
      attempts_in_run: 2,
      interruptions: 2,
    });
    expect(await kinds(pool, [id], { at: later(2 * LEASE_MS + 1) })).toEqual(["must_be_quarantined"]);
    expect(await attemptRows(pool, id)).toHaveLength(2);

    const alone = await claimOne(pool, id, { at: later(2 * LEASE_MS + 2), isInQuarantine: true });
    expect(alone).toMatchObject({ number: 3, wasInterrupted: false, wasInterruptedInQuarantine: false });
    expect(await openRow(pool, id)).toMatchObject({ lease_alone: true });
  });

  it("counts in a row only: any other outcome starts over", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    const second = await claimOne(pool, id, { at: later(LEASE_MS) });
    const dueAtMs = later(LEASE_MS + 10).getTime();
    await recordOutcomes(pool, [attemptOf(second, { status: "failed", dueAtMs })]);
    expect(await openRow(pool, id)).toMatchObject({ interruptions: 0, attempts_in_run: 2 });
    await claimOne(pool, id, { at: later(LEASE_MS + 10) });
    expect(await kinds(pool, [id], { at: later(3 * LEASE_MS) })).toEqual(["leased"]);
  });

  it("is told by anybody's claim when it had been posted alone", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    await claimOne(pool, id, { at: later(LEASE_MS) });
    await claimOne(pool, id, { at: later(2 * LEASE_MS), isInQuarantine: true });
    const last = await claimOne(pool, id, { at: later(3 * LEASE_MS) });
    expect(last).toMatchObject({ wasInterrupted: true, wasInterruptedInQuarantine: true });
    expect(await attemptRows(pool, id)).toHaveLength(3);
    // Whoever was to end the delivery dies too, before it is ended: it is not posted for that.
    const again = await claimOne(pool, id, { at: later(4 * LEASE_MS) });
    expect(again).toMatchObject({ wasInterruptedInQuarantine: true, number: null });
    expect(await attemptRows(pool, id)).toHaveLength(3);
  });

  it("that was posted alone is still known when the claim that found it had no bytes left", async () => {
    const first = await publishOne();
    const id = await publishOne(later(1));
    await claimOne(pool, id, { at: later(1) });
    await claimOne(pool, id, { at: later(1 + LEASE_MS) });
    await claimOne(pool, id, { at: later(1 + 2 * LEASE_MS), isInQuarantine: true });
    const { deliveries } = await claim(pool, [first, id], { at: later(1 + 3 * LEASE_MS), bytesMax: 1 });
    expect(deliveries.map((one) => one.kind).sort()).toEqual(["leased", "left"]);
    const last = await claimOne(pool, id, { at: later(1 + 3 * LEASE_MS) });
    expect(last).toMatchObject({ wasInterruptedInQuarantine: true });
  });

  it("of a run that a replay has replaced belongs to that run and is not held against the new one", async () => {
    const id = await publishOne();
    const first = await claimOne(pool, id, { at: T0 });
    await recordOutcomes(pool, [attemptOf(first, { status: "failed", dueAtMs: T0.getTime() })]);
    await claimOne(pool, id, { at: later(100) });
    expect(await replayDelivery(pool, wholeAccount(accountId), id, 7 * 86_400_000)).toBe("replayed");
    const replayedAt = (await openRow(pool, id))!.due_at;
    const next = await claimOne(pool, id, { at: new Date(replayedAt.getTime() + LEASE_MS) });
    expect(next).toMatchObject({ run: 2, number: 1, wasInterrupted: true });
    expect(await attemptRows(pool, id)).toMatchObject([
      { run: 1, number: 1, outcome: "rejected" },
      { run: 1, number: 2, outcome: "interrupted" },
    ]);
    expect(await deliveryRow(pool, id)).toMatchObject({ status: "pending", run: 2, attempts_count: 2 });
  });

  it("alone, in a run that a replay has replaced, does not end the new run", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    await claimOne(pool, id, { at: later(LEASE_MS) });
    await claimOne(pool, id, { at: later(2 * LEASE_MS), isInQuarantine: true });
    expect(await replayDelivery(pool, wholeAccount(accountId), id, 7 * 86_400_000)).toBe("replayed");
    const next = await claimOne(pool, id, { at: later(4 * LEASE_MS) });
    expect(next).toMatchObject({
      run: 2,
      number: 1,
      wasInterrupted: true,
      wasInterruptedInQuarantine: false,
    });
  });
});

describe("when the promoter looks again", () => {
  it("is not changed by a claim whose lease ends later", async () => {
    const id = await publishOne();
    const before = (await openRow(pool, id))!.wake_at;
    await claimOne(pool, id, { at: later(1), leaseMs: 20_000 });
    expect((await openRow(pool, id))!.wake_at).toEqual(before);
  });

  it("is at the end of a lease that ends sooner", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: later(1), leaseMs: 5_100 });
    expect((await openRow(pool, id))!.wake_at).toEqual(later(5_101));
  });
});
