import { beforeEach, describe, expect, it } from "vitest";
import { isRefusedData } from "../../src/base/database/pools.ts";
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
  openRow,
  publishAt,
} from "../support/delivery-rows.ts";
import { countRows, insertAccount } from "../support/installation.ts";
import { openForDispatch } from "../support/open.ts";

const { database, pool } = await openForDispatch();
let accountId: string;
let published = 0;

beforeEach(async () => {
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});

const RETENTION_MS = 7 * 86_400_000;
const T0 = new Date(Date.now() - (Date.now() % 1000));
const later = (ms: number) => new Date(T0.getTime() + ms);
const failedUntil = (at: Date) => ({ status: "failed", dueAtMs: at.getTime() }) as const;
const releasedUntil = (at: Date) => ({ status: "released", dueAtMs: at.getTime() }) as const;
const abandoned = { status: "abandoned", reason: "no_target", errorCode: null } as const;
const publishSome = (count: number) =>
  publishAt(
    pool,
    accountId,
    T0,
    Array.from({ length: count }, () => `r-${published++}`),
  );
const publishOne = async () => (await publishSome(1))[0]!;

describe("an outcome", () => {
  it("that succeeded ends the delivery", async () => {
    const id = await publishOne();
    const delivery = await claimOne(pool, id, { at: T0 });
    expect(await recordOutcomes(pool, [attemptOf(delivery, { status: "succeeded" })])).toEqual(new Set([id]));
    expect(await deliveryRow(pool, id)).toEqual({
      status: "succeeded",
      reason: null,
      run: 1,
      attempts_count: 1,
      last_error_code: null,
      last_status_code: 200,
      endpoint_url: "https://receiver.example.com/",
    });
    expect(await openRow(pool, id)).toBeNull();
  });

  it("that failed gives the lease back and says when the next attempt is due", async () => {
    const id = await publishOne();
    const delivery = await claimOne(pool, id, { at: T0 });
    await recordOutcomes(pool, [attemptOf(delivery, failedUntil(later(9_000)))]);
    expect(await deliveryRow(pool, id)).toMatchObject({
      status: "failed",
      attempts_count: 1,
      last_error_code: "status_503",
      last_status_code: 503,
    });
    expect(await openRow(pool, id)).toMatchObject({
      lease_token: null,
      lease_until: null,
      lease_number: null,
      attempts_in_run: 1,
      due_at: later(9_000),
      wake_at: later(9_000),
    });
  });

  it("keeps every particular of the attempt", async () => {
    const id = await publishOne();
    const delivery = await claimOne(pool, id, { at: T0 });
    const particulars = {
      startedAtMs: T0.getTime() + 0.25,
      endedAtMs: T0.getTime() + 1_000.5,
      dnsMs: 1.5,
      connectMs: 2.5,
      tlsMs: 3.5,
      firstByteMs: 4.5,
      statusCode: 418,
      outcome: "rejected",
      errorCode: "status_418",
      targetUrl: 'https://receiver.example.com/?q="{},\\',
      remoteAddress: "2001:db8::1",
      responseHeaders: '{"server":"a \\"b\\""}',
      responseExcerpt: 'line one\nNULL\t{},"\\ é 😀',
    } as const;
    await recordOutcomes(pool, [attemptOf(delivery, failedUntil(later(9_000)), particulars)]);
    const { rows } = await pool.query(
      `select *, extract(epoch from started_at) * 1000 as started, extract(epoch from ended_at) * 1000 as ended
       from sealpost.attempts where delivery_id = $1`,
      [id],
    );
    expect(rows).toMatchObject([
      {
        account_id: accountId,
        run: 1,
        number: 1,
        dns_ms: 1.5,
        connect_ms: 2.5,
        tls_ms: 3.5,
        first_byte_ms: 4.5,
        status_code: 418,
        outcome: "rejected",
        error_code: "status_418",
        target_url: particulars.targetUrl,
        remote_address: "2001:db8::1",
        response_headers: particulars.responseHeaders,
        response_excerpt: particulars.responseExcerpt,
      },
    ]);
    expect(Number(rows[0].started)).toBe(particulars.startedAtMs);
    expect(Number(rows[0].ended)).toBe(particulars.endedAtMs);
  });

  it("without an attempt abandons, and logs none", async () => {
    const id = await publishOne();
    const delivery = await claimOne(pool, id, { at: T0 });
    await recordOutcomes(pool, [attemptOf(delivery, abandoned, null)]);
    expect(await deliveryRow(pool, id)).toMatchObject({
      status: "abandoned",
      reason: "no_target",
      attempts_count: 0,
    });
    expect(await attemptRows(pool, id)).toEqual([]);
    expect(await openRow(pool, id)).toBeNull();
  });

  it("that only asked for its turn begins no run, and leaves one that has begun as it is", async () => {
    const waits = { status: "waits" } as const;
    const id = await publishOne();
    await recordOutcomes(pool, [attemptOf(await claimOne(pool, id, { at: T0 }), waits, null)]);
    // It is due as before: so long it has waited.
    expect(await openRow(pool, id)).toMatchObject({ run_started_at: null, due_at: T0 });
    const delivery = await claimOne(pool, id, { at: later(LEASE_MS) });
    await recordOutcomes(pool, [attemptOf(delivery, failedUntil(later(LEASE_MS + 5)))]);
    const retried = await claimOne(pool, id, { at: later(2 * LEASE_MS) });
    await recordOutcomes(pool, [attemptOf(retried, waits, null)]);
    const [run_started_at, due_at] = [later(LEASE_MS), later(LEASE_MS + 5)];
    expect(await openRow(pool, id)).toMatchObject({ run_started_at, due_at });
    const { leaseToken } = await claimOne(pool, id, { at: later(3 * LEASE_MS) });
    await pool.query("select sealpost.send_to_endpoint($1, $2, now())", [[id], leaseToken]);
    expect((await openRow(pool, id))!.run_started_at, "its window begins anew at the endpoint").toBeNull();
  });

  it("that was released changes nothing but when it is due", async () => {
    const id = await publishOne();
    await claimOne(pool, id, { at: T0 });
    const delivery = await claimOne(pool, id, { at: later(LEASE_MS) });
    const before = await deliveryRow(pool, id);
    await recordOutcomes(pool, [attemptOf(delivery, releasedUntil(later(LEASE_MS + 5)), null)]);
    expect(await deliveryRow(pool, id)).toEqual(before);
    expect(await openRow(pool, id)).toMatchObject({
      lease_token: null,
      attempts_in_run: 1,
      interruptions: 1,
      due_at: later(LEASE_MS + 5),
    });
    const again = await claimOne(pool, id, { at: later(LEASE_MS + 5) });
    expect(again).toMatchObject({ number: 2, wasInterrupted: false });
  });

  it("is one of many in a statement, whatever their order and kinds", async () => {
    const ids = await publishSome(60);
    const { deliveries } = await claim(pool, ids, { at: T0 });
    const nexts = [
      { status: "succeeded" } as const,
      failedUntil(later(500)),
      abandoned,
      releasedUntil(later(9)),
    ];
    const recordings = deliveries
      .toReversed()
      .map((delivery, n) =>
        delivery.kind === "leased"
          ? attemptOf(delivery, nexts[n % 4]!, n % 4 < 2 ? {} : null)
          : expect.unreachable(delivery.kind),
      );
    expect(await recordOutcomes(pool, recordings)).toEqual(new Set(ids));
    const countOf = (status: string) => countRows(pool, "deliveries", { account_id: accountId, status });
    const statuses = ["abandoned", "failed", "pending", "succeeded"];
    expect(await Promise.all(statuses.map(countOf))).toEqual([15, 15, 15, 15]);
  });

  it("meets another batch over the same rows in another order without a deadlock", async () => {
    const ids = await publishSome(50);
    const { deliveries } = await claim(pool, ids, { at: T0 });
    const recordings = deliveries.map((delivery) =>
      delivery.kind === "leased"
        ? attemptOf(delivery, { status: "succeeded" })
        : expect.unreachable(delivery.kind),
    );
    const answers = await Promise.all([
      recordOutcomes(pool, recordings),
      recordOutcomes(pool, recordings.toReversed()),
      claim(pool, ids, { at: later(2 * LEASE_MS) }),
    ]);
    const ours = [...answers[0], ...answers[1]];
    // Each is written by exactly one of the three: recorded once, or taken over because its lease was over by then.
    expect(ours.length + answers[2].deliveries.length).toBe(50);
    expect(new Set(ours).size).toBe(ours.length);
  });
});

describe("a zombie's outcome", () => {
  it("changes nothing once somebody else has the lease", async () => {
    const id = await publishOne();
    const zombie = await claimOne(pool, id, { at: T0 });
    const heir = await claimOne(pool, id, { at: later(LEASE_MS) });
    const before = [await deliveryRow(pool, id), await openRow(pool, id), await attemptRows(pool, id)];
    for (const next of [{ status: "succeeded" } as const, failedUntil(later(1)), releasedUntil(later(1))]) {
      expect(await recordOutcomes(pool, [attemptOf(zombie, next)])).toEqual(new Set());
    }
    expect([await deliveryRow(pool, id), await openRow(pool, id), await attemptRows(pool, id)]).toEqual(
      before,
    );
    expect(await recordOutcomes(pool, [attemptOf(heir, { status: "succeeded" })])).toEqual(new Set([id]));
  });

  it("changes nothing once the delivery has ended", async () => {
    const id = await publishOne();
    const zombie = await claimOne(pool, id, { at: T0 });
    const heir = await claimOne(pool, id, { at: later(LEASE_MS) });
    await recordOutcomes(pool, [attemptOf(heir, { status: "succeeded" })]);
    const before = [await deliveryRow(pool, id), await attemptRows(pool, id)];
    expect(await recordOutcomes(pool, [attemptOf(zombie, failedUntil(later(1)))])).toEqual(new Set());
    expect([await deliveryRow(pool, id), await attemptRows(pool, id)]).toEqual(before);
  });

  it("leaves its batch's neighbours their own", async () => {
    const [lost, kept] = (await publishSome(2)) as [string, string];
    const [zombie, own] = [await claimOne(pool, lost, { at: T0 }), await claimOne(pool, kept, { at: T0 })];
    await claimOne(pool, lost, { at: later(LEASE_MS) });
    const succeeded = [zombie, own].map((delivery) => attemptOf(delivery, { status: "succeeded" }));
    expect(await recordOutcomes(pool, succeeded)).toEqual(new Set([kept]));
  });

  it("still counts when the lease ran out and nobody has taken over", async () => {
    const id = await publishOne();
    const delivery = await claimOne(pool, id, { at: T0, leaseMs: 1 });
    expect(await recordOutcomes(pool, [attemptOf(delivery, { status: "succeeded" })])).toEqual(new Set([id]));
  });
});

describe("a replay during an attempt", () => {
  async function replayedInFlight() {
    const id = await publishOne();
    const first = await claimOne(pool, id, { at: T0 });
    await recordOutcomes(pool, [attemptOf(first, failedUntil(T0))]);
    const second = await claimOne(pool, id, { at: later(1) });
    expect(await replayDelivery(pool, wholeAccount(accountId), id, RETENTION_MS)).toBe("replayed");
    return { id, second };
  }

  it("leaves the lease alone: never two attempts at once", async () => {
    const { id, second } = await replayedInFlight();
    expect(await openRow(pool, id)).toMatchObject({
      lease_token: second.leaseToken,
      lease_run: 1,
      lease_number: 2,
      run: 2,
      attempts_in_run: 0,
    });
    expect((await claim(pool, [id], { at: later(LEASE_MS) })).deliveries).toEqual([]);
  });

  it("starts its run after an attempt that failed, whose result moves nothing", async () => {
    const { id, second } = await replayedInFlight();
    const due = (await openRow(pool, id))!.due_at;
    expect(await recordOutcomes(pool, [attemptOf(second, failedUntil(later(3_600_000)))])).toEqual(
      new Set([id]),
    );
    expect(await deliveryRow(pool, id)).toMatchObject({ status: "pending", run: 2, attempts_count: 2 });
    expect(await openRow(pool, id)).toMatchObject({
      lease_token: null,
      due_at: due,
      wake_at: due,
      attempts_in_run: 0,
      run_started_at: null,
    });
    const next = await claimOne(pool, id, { at: new Date(due.getTime() + 1) });
    expect(next).toMatchObject({ run: 2, number: 1, wasInterrupted: false });
    expect(await attemptRows(pool, id)).toMatchObject([
      { run: 1, number: 1 },
      { run: 1, number: 2 },
    ]);
  });

  it("falls away when that attempt succeeds", async () => {
    const { id, second } = await replayedInFlight();
    await recordOutcomes(pool, [attemptOf(second, { status: "succeeded" })]);
    expect(await deliveryRow(pool, id)).toMatchObject({ status: "succeeded", run: 1, attempts_count: 2 });
    expect(await openRow(pool, id)).toBeNull();
  });

  it("outlives an attempt that would have abandoned the run, or was given back", async () => {
    const ended = await replayedInFlight();
    const exhausted = { status: "abandoned", reason: "attempts_exhausted", errorCode: "status_503" } as const;
    await recordOutcomes(pool, [attemptOf(ended.second, exhausted)]);
    expect(await deliveryRow(pool, ended.id)).toMatchObject({ status: "pending", reason: null, run: 2 });

    const given = await replayedInFlight();
    await recordOutcomes(pool, [attemptOf(given.second, releasedUntil(later(3_600_000)), null)]);
    const due = (await openRow(pool, given.id))!.due_at;
    expect(due.getTime()).toBeLessThan(later(3_600_000).getTime());
    expect(await claimOne(pool, given.id, { at: new Date(due.getTime() + 1) })).toMatchObject({
      run: 2,
      number: 1,
    });
  });
});

describe("data that cannot be stored", () => {
  it("is refused as such, and the whole batch with it, so that it can be halved", async () => {
    const ids = await publishSome(3);
    const { deliveries } = await claim(pool, ids, { at: T0 });
    const recordings = deliveries.map((delivery, n) =>
      delivery.kind === "leased"
        ? attemptOf(delivery, { status: "succeeded" }, { responseExcerpt: n === 1 ? "a\u0000b" : "fine" })
        : expect.unreachable(delivery.kind),
    );
    const failure = await recordOutcomes(pool, recordings).catch((error: unknown) => error);
    expect(isRefusedData(failure)).toBe(true);
    for (const id of ids) expect(await deliveryRow(pool, id)).toMatchObject({ status: "pending" });
    expect((await recordOutcomes(pool, recordings.toSpliced(1, 1))).size).toBe(2);
  });
});
