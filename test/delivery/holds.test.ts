import { describe, expect, it } from "vitest";
import { recoverInterrupted } from "../../src/delivery/claim-sql.ts";
import { findEndpoint, pauseEndpoint, removeEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { promoteDue, takeBackOverflow } from "../../src/delivery/promote-sql.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { publishExample } from "../../src/publish/publish-call-sql.ts";
import {
  attemptOf,
  attemptRows,
  claim,
  claimOne,
  deliveryRow,
  LEASE_MS,
  openRow,
} from "../support/delivery-rows.ts";
import { begin, countRows, insertAccount, rowsOf, untilSomebodyWaits } from "../support/installation.ts";
import {
  accountId,
  ago,
  database,
  held,
  later,
  logged,
  pauseNow,
  pool,
  publishNow,
  publishSome,
  resume,
  step,
  URL,
  usePausableAccount,
} from "../support/pausable-account.ts";
import { countJobs, takeWakeups } from "../support/wakeup-jobs.ts";

usePausableAccount();

describe("a pause", () => {
  it("takes what waits out of everybody's reach: claims, promotions, lanes and wake-ups", async () => {
    const ids = await publishSome(3);
    const { lane } = (await rowsOf(database.pool, "open_deliveries"))[0]!;
    expect(await pauseNow()).toBe(true);
    expect(await held()).toEqual(ids);
    expect((await claim(pool, ids)).deliveries).toEqual([]);
    expect(await promoteDue(pool, later(3_600_000))).toMatchObject({ looked: 0, woken: 0 });
    const overflow = { accountId, lane, fromId: ids[0]!, room: 10 };
    expect(await takeBackOverflow(pool, [overflow])).toEqual([{ deliveryIds: [], nextFromId: null }]);
    expect(await findEndpoint(database.pool, accountId)).toMatchObject({
      held: 3,
      paused_at: expect.any(String),
    });
  });

  it("counts nothing of a run's window that has passed since it was due, as it has only waited", async () => {
    const [id] = await publishSome(1, ago(100_000));
    const { runStartedAtMs, ...delivery } = await claimOne(pool, id!, { at: ago(90_000) });
    const failed = { status: "failed", dueAtMs: runStartedAtMs + 10_000 } as const;
    await recordOutcomes(pool, [attemptOf({ ...delivery, runStartedAtMs }, failed)]);
    await pauseNow();
    const [row] = await rowsOf(database.pool, "held_deliveries", { delivery_id: id });
    expect(row).toMatchObject({ run_age_s: expect.closeTo(10, 1) });
  });

  it("that finds the endpoint paused keeps it so until its answer is made", async () => {
    await pauseNow();
    const again = await begin(database.pool);
    expect(await pauseEndpoint(again.client, accountId)).toBe(true);
    const resuming = resume();
    await untilSomebodyWaits(database.pool);
    expect(await findEndpoint(again.client, accountId)).toMatchObject({ paused_at: expect.any(String) });
    await again.commit();
    expect(await resuming).toBe(true);
    expect(await findEndpoint(database.pool, accountId)).toMatchObject({ paused_at: null });
  });

  it("leaves the status as it is, and shows in the log", async () => {
    const [id] = await publishSome(1);
    expect(await logged(id!)).toMatchObject({ status: "pending", held: false });
    await pauseNow();
    expect(await logged(id!)).toMatchObject({
      status: "pending",
      reason: null,
      held: true,
      next_attempt_at: null,
      in_flight: false,
    });
  });

  it("is the account's own, and only for its endpoint", async () => {
    const other = await insertAccount(database.pool, URL);
    const [of_other] = await publishSome(1, ago(1_000), other);
    const own = await publishNow("https://hooks.example.com/own");
    await pauseNow();
    const during = await publishNow("https://hooks.example.com/own");
    expect(await held()).toEqual([]);
    const claimed = await claim(pool, [of_other!, own, during]);
    expect(claimed.deliveries.map(({ kind }) => kind)).toEqual(["leased", "leased", "leased"]);
    expect(await logged(during)).toMatchObject({ held: false });
  });

  it("holds what is published from then on, one by one or many, and wakes nobody", async () => {
    await pauseNow();
    const one = await publishNow();
    const many = await publishSome(2, new Date());
    expect(await held()).toEqual([one, ...many].sort());
    // The jobs tell only the feed.
    expect((await takeWakeups(database.pool)).ids).toEqual([]);
    expect(await countRows(database.pool, "open_deliveries")).toBe(0);
  });

  it("lets a test event out, whose retries are not held either", async () => {
    await pauseNow();
    const [id] = await publishExample(database.pool, {
      accountId,
      analysis: '{"id":"example-1","status":"succeeded","example":true}',
      webhookUrl: null,
    });
    expect((await takeWakeups(database.pool)).ids).toEqual([id]);
    expect(await logged(id!)).toMatchObject({ held: false });
    const delivery = await claimOne(pool, id!);
    expect(delivery.endpointUrl).toBe(URL);
    await recordOutcomes(pool, [attemptOf(delivery, { status: "failed", dueAtMs: Date.now() - 1 })]);
    expect(await promoteDue(pool, later(1_000))).toMatchObject({ woken: 1 });
  });

  it("waits for no attempt: what is in flight ends, and what of it fails is held when it is due", async () => {
    const [failing, fine] = await publishSome(2);
    const attempts = [await claimOne(pool, failing!), await claimOne(pool, fine!)];
    await pauseNow();
    expect(await held()).toEqual([]);
    expect(await logged(failing!)).toMatchObject({ held: false, in_flight: true });
    await recordOutcomes(pool, [
      attemptOf(attempts[0]!, { status: "failed", dueAtMs: Date.now() + 30_000 }),
      attemptOf(attempts[1]!, { status: "succeeded" }),
    ]);
    expect(await logged(failing!)).toMatchObject({ held: true, next_attempt_at: null });
    expect(await promoteDue(pool, later(29_000))).toMatchObject({ looked: 0 });
    expect(await promoteDue(pool, later(31_000))).toMatchObject({ looked: 1, woken: 0 });
    expect(await held()).toEqual([failing]);
    expect((await deliveryRow(pool, failing!)).status).toBe("failed");
  });

  it("finds with a second look, a minute later, what was in flight at the first", async () => {
    const [id] = await publishSome(1);
    const attempt = await claimOne(pool, id!);
    await pauseNow();
    await recordOutcomes(pool, [attemptOf(attempt, { status: "failed", dueAtMs: Date.now() + 3_600_000 })]);
    await step(later(59_000));
    expect(await held()).toEqual([]);
    await step(later(61_000));
    expect(await held()).toEqual([id]);
    expect(await rowsOf(database.pool, "endpoints")).toMatchObject([{ gather_at: null }]);
  });

  it("looks through a long queue step by step", async () => {
    const ids = await publishSome(25);
    await publishSome(25, ago(1_000), await insertAccount(database.pool, URL));
    await database.pool.query("select sealpost.pause_endpoint($1, 10)", [accountId]);
    expect(await held()).toEqual(ids.slice(0, 10));
    expect((await rowsOf(database.pool, "endpoints", { account_id: accountId }))[0]!.gather_from).toBe(
      ids[9],
    );
    // What is not found yet is not posted either: a claim sees that it is paused.
    expect((await claim(pool, ids.slice(20))).deliveries).toEqual([]);
    expect(await held()).toEqual([...ids.slice(0, 10), ...ids.slice(20)]);
    await step();
    expect(await held()).toEqual(ids);
  });

  it("holds a publication whose transaction did not see it, when it is claimed or due again", async () => {
    const before = await begin(database.pool);
    const seen = await publishNow();
    const unseen = await publishNow(null, before.client);
    await pauseNow();
    await before.commit();
    expect(await held()).toEqual([seen]);
    const jobs = (await takeWakeups(database.pool)).ids;
    expect(jobs).toContain(unseen);
    expect((await claim(pool, [unseen])).deliveries).toEqual([]);
    expect(await held()).toEqual([seen, unseen].sort());
    // As if nobody had ever claimed it.
    await resume();
    await step();
    expect(await claimOne(pool, unseen)).toMatchObject({ number: 1, wasInterrupted: false });
    expect(await attemptRows(pool, unseen)).toEqual([]);
  });

  it("keeps what a dead dispatcher had in flight: the cut attempt is logged, then it is held", async () => {
    const [id] = await publishSome(1);
    await claimOne(pool, id!, { at: ago(LEASE_MS + 5_000) });
    await pauseNow();
    expect(await held()).toEqual([]);
    expect(await promoteDue(pool, null)).toMatchObject({ woken: 1 });
    expect((await claim(pool, [id!])).deliveries).toEqual([]);
    expect(await attemptRows(pool, id!)).toMatchObject([{ number: 1, outcome: "interrupted" }]);
    expect(await held()).toEqual([id]);
    await resume();
    await step();
    expect(await openRow(pool, id!)).toMatchObject({ attempts_in_run: 1, interruptions: 1 });
  });

  it("lets end what was cut in quarantine, which cannot be held", async () => {
    const [id] = await publishSome(1);
    await claimOne(pool, id!, { at: ago(LEASE_MS + 5_000), isInQuarantine: true });
    await pauseNow();
    // As a move's process does, or a dispatcher that dies before it claims it again.
    expect(await recoverInterrupted(pool, [id!], null)).toHaveLength(1);
    expect(await promoteDue(pool, later(60_000))).toMatchObject({ looked: 1, woken: 1 });
    const ending = await claimOne(pool, id!);
    expect(ending).toMatchObject({ number: null, wasInterruptedInQuarantine: true });
  });

  it("twice is once, and without an endpoint it is nothing", async () => {
    await pauseNow();
    const first = (await findEndpoint(database.pool, accountId))!.paused_at;
    expect(await pauseNow()).toBe(true);
    expect((await findEndpoint(database.pool, accountId))!.paused_at).toEqual(first);
    const bare = await insertAccount(database.pool);
    expect([await pauseNow(bare), await resume(bare)]).toEqual([false, false]);
  });
});

describe("the clock of a run", () => {
  it("stands still from the pause on: window, wait and count go on where they were", async () => {
    const published = ago(3_600_000);
    const [id] = await publishSome(1, published);
    const delivery = await claimOne(pool, id!, { at: published });
    await recordOutcomes(pool, [
      attemptOf(
        delivery,
        { status: "failed", dueAtMs: Date.now() + 600_000 },
        { startedAtMs: published.getTime() },
      ),
    ]);
    const before = (await openRow(pool, id!))!;
    await takeWakeups(database.pool);
    await pauseNow();
    const pausedAt = Date.parse((await findEndpoint(database.pool, accountId))!.paused_at!);
    await resume();
    // Two days later.
    const resumedAt = later(2 * 86_400_000);
    expect(await step(resumedAt)).toMatchObject({ released: 1, expired: 0 });
    const after = (await openRow(pool, id!))!;
    const stoodMs = resumedAt.getTime() - pausedAt;
    expect(Math.abs(after.due_at.getTime() - before.due_at.getTime() - stoodMs)).toBeLessThan(5);
    expect(
      Math.abs(after.run_started_at!.getTime() - before.run_started_at!.getTime() - stoodMs),
    ).toBeLessThan(5);
    expect(after).toMatchObject({ attempts_in_run: 1, run: 1, wake_at: after.due_at });
    // It is not due, so it wakes nobody.
    expect(await countJobs(database.pool)).toBe(0);
  });

  it("has not begun for what was never attempted", async () => {
    const [id] = await publishSome(1);
    await pauseNow();
    await resume();
    await step();
    expect(await openRow(pool, id!)).toMatchObject({ run_started_at: null, attempts_in_run: 0 });
    expect(await claimOne(pool, id!)).toMatchObject({ number: 1 });
  });
});

describe("a resume", () => {
  it("lets go oldest first, a few of each account a step, in equal shares", async () => {
    const ids = await publishSome(5);
    const other = await insertAccount(database.pool, URL);
    const others = await publishSome(5, ago(1_000), other);
    await pauseNow();
    await pauseNow(other);
    await takeWakeups(database.pool);
    await resume();
    expect(await step(null, 3, 4)).toMatchObject({ released: 3 });
    expect((await takeWakeups(database.pool)).ids).toEqual(ids.slice(0, 3));
    await resume(other);
    expect(await step(null, 3, 4)).toMatchObject({ released: 4 });
    expect((await takeWakeups(database.pool)).ids.sort()).toEqual(
      [...ids.slice(3), ...others.slice(0, 2)].sort(),
    );
    expect(await step(null, 3, 4)).toMatchObject({ released: 3 });
    expect(await step(null, 3, 4)).toEqual({ released: 0, expired: 0, isGathering: false });
    expect((await findEndpoint(database.pool, accountId))!.held).toBe(0);
  });

  it("sends what is new at once, beside what was held", async () => {
    await pauseNow();
    const old = await publishNow();
    await resume();
    const fresh = await publishNow();
    expect((await takeWakeups(database.pool)).ids).toEqual([fresh]);
    expect(await logged(old)).toMatchObject({ held: true });
    expect(await logged(fresh)).toMatchObject({ held: false });
  });

  it("finds what a transaction that saw the pause commits after it", async () => {
    await pauseNow();
    const slow = await begin(database.pool);
    const id = await publishNow(null, slow.client);
    await resume();
    expect(await step()).toMatchObject({ released: 0 });
    await slow.commit();
    expect(await step()).toMatchObject({ released: 1 });
    expect((await takeWakeups(database.pool)).ids).toEqual([id]);
  });

  it("ended by another pause keeps the rest", async () => {
    const ids = await publishSome(4);
    await pauseNow();
    await resume();
    await step(null, 2);
    await pauseNow();
    expect(await held()).toEqual(ids);
  });

  it("of an endpoint that was removed lets everything go, to end as it would have", async () => {
    const [id] = await publishSome(1);
    await pauseNow();
    await removeEndpoint(database.pool, accountId);
    expect(await step()).toMatchObject({ released: 1 });
    expect(await claimOne(pool, id!)).toMatchObject({ endpointUrl: null, webhookUrl: null });
  });
});
