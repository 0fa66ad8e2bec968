// What becomes of held deliveries beside pausing and resuming: expiry, replays, old dispatchers, crowds.

import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { advanceHolds, pauseEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { promoteDue } from "../../src/delivery/promote-sql.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { replayDelivery } from "../../src/log/replays-sql.ts";
import { attemptOf, claim, claimOne, deliveryRow } from "../support/delivery-rows.ts";
import { begin, changeRows, countRows, rowsOf } from "../support/installation.ts";
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
  usePausableAccount,
  WEEK_MS,
} from "../support/pausable-account.ts";
import { countJobs, takeWakeups } from "../support/wakeup-jobs.ts";

usePausableAccount();

describe("the analysis of a held delivery", () => {
  it("expires: then it is abandoned, while it is paused and afterwards", async () => {
    const [old, young] = [...(await publishSome(1, ago(WEEK_MS - 60_000))), ...(await publishSome(1))];
    await pauseNow();
    await takeWakeups(database.pool);
    expect(await step(later(59_000))).toMatchObject({ expired: 0 });
    expect(await step(later(61_000))).toMatchObject({ expired: 1, released: 0 });
    expect(await deliveryRow(pool, old!)).toMatchObject({ status: "abandoned", reason: "analysis_expired" });
    expect(await held()).toEqual([young]);
    await resume();
    expect(await step(later(WEEK_MS))).toMatchObject({ expired: 1, released: 0 });
    expect(await held()).toEqual([]);
    expect(await countJobs(database.pool)).toBe(0);
  });
});

describe("a replay", () => {
  const replay = (id: string) => replayDelivery(database.pool, wholeAccount(accountId), id, WEEK_MS);

  it("of a held delivery is held, as its next run with all of its attempts", async () => {
    const [id] = await publishSome(1);
    const delivery = await claimOne(pool, id!);
    await recordOutcomes(pool, [attemptOf(delivery, { status: "failed", dueAtMs: Date.now() + 60_000 })]);
    await pauseNow();
    expect(await held()).toEqual([id]);
    await takeWakeups(database.pool);
    expect(await replay(id!)).toBe("replayed");
    expect(await logged(id!)).toMatchObject({ status: "pending", run: 2, held: true });
    expect(await countJobs(database.pool)).toBe(0);
    await resume();
    await step();
    expect(await claimOne(pool, id!)).toMatchObject({ run: 2, number: 1 });
  });

  it("of an abandoned one is held, too", async () => {
    const [id] = await publishSome(1);
    const delivery = await claimOne(pool, id!);
    const abandoned = { status: "abandoned", reason: "attempts_exhausted", errorCode: "status_503" } as const;
    await recordOutcomes(pool, [attemptOf(delivery, abandoned)]);
    await pauseNow();
    expect(await replay(id!)).toBe("replayed");
    expect(await held()).toEqual([id]);
    expect(await rowsOf(database.pool, "open_deliveries")).toEqual([]);
    expect(await replay(id!)).toBe("not_replayable");
  });

  it("while an attempt is in flight is held when that attempt has failed", async () => {
    const [id] = await publishSome(1);
    const first = await claimOne(pool, id!);
    await recordOutcomes(pool, [attemptOf(first, { status: "failed", dueAtMs: Date.now() - 1 })]);
    const second = await claimOne(pool, id!);
    await pauseNow();
    expect(await replay(id!)).toBe("replayed");
    await recordOutcomes(pool, [attemptOf(second, { status: "failed", dueAtMs: Date.now() + 60_000 })]);
    await promoteDue(pool, later(1_000));
    expect(await held()).toEqual([id]);
    await resume();
    await step();
    expect(await claimOne(pool, id!)).toMatchObject({ run: 2, number: 1 });
  });

  it.each(["held", "let go"])("that meets a delivery just being %s finds it", async (what) => {
    const [id] = await publishSome(1);
    const delivery = await claimOne(pool, id!);
    await recordOutcomes(pool, [attemptOf(delivery, { status: "failed", dueAtMs: Date.now() - 1 })]);
    if (what === "let go") {
      await pauseNow();
      await resume();
    }
    const moving = await begin(database.pool);
    if (what === "held") await pauseEndpoint(moving.client, accountId);
    else await advanceHolds(moving.client, WEEK_MS, null);
    const replaying = replay(id!);
    await moving.commit();
    expect(await replaying).toBe("replayed");
    const rows = [
      ...(await rowsOf(database.pool, "open_deliveries")),
      ...(await rowsOf(database.pool, "held_deliveries")),
    ];
    expect(rows.map(({ delivery_id, run }) => [delivery_id, run])).toEqual([[id, 2]]);
  });
});

describe("a dispatcher of the version before", () => {
  /** Its claim knows nothing of pauses: it takes what is in open_deliveries and due. */
  const claimAsBefore = async (id: string) => {
    const { rowCount } = await pool.query(
      `update sealpost.open_deliveries
       set lease_token = $2, lease_until = now() + interval '20 seconds', lease_started_at = now(), lease_run = run,
         lease_number = attempts_in_run + 1
       where delivery_id = $1 and due_at <= now() and (lease_until is null or lease_until <= now())`,
      [id, randomUUID()],
    );
    return rowCount === 1;
  };

  it("finds nothing that is held, be it named by a wake-up from before", async () => {
    const [id] = await publishSome(1);
    await pauseNow();
    expect(await claimAsBefore(id!)).toBe(false);
    const during = await publishNow();
    expect(await claimAsBefore(during)).toBe(false);
  });

  it("that leads lets go what was held", async () => {
    const [id] = await publishSome(1);
    await pauseNow();
    await resume();
    await takeWakeups(database.pool);
    await database.pool.query("select sealpost.advance_replays(interval '7 days', now())");
    expect((await takeWakeups(database.pool)).ids).toEqual([id]);
    expect(await claimAsBefore(id!)).toBe(true);
  });

  it("that promotes holds what is due, though it does not know", async () => {
    const [id] = await publishSome(1);
    const attempt = await claimOne(pool, id!);
    await pauseNow();
    await recordOutcomes(pool, [attemptOf(attempt, { status: "failed", dueAtMs: Date.now() - 1 })]);
    await database.pool.query("select sealpost.promote(now(), 1000, 100, 200)");
    expect(await claimAsBefore(id!)).toBe(false);
    expect(await held()).toEqual([id]);
  });
});

it("what was published at the same moment and paused, resumed and claimed by many is in one place", async () => {
  const ids = (await Promise.all(Array.from({ length: 8 }, () => publishSome(25)))).flat();
  const busy = { isDone: false };
  const claimed: string[] = [];
  const claimers = Array.from({ length: 3 }, async () => {
    while (!busy.isDone) {
      const { deliveries } = await claim(pool, ids);
      const leased = deliveries.filter((one) => one.kind === "leased");
      claimed.push(...leased.map(({ deliveryId }) => deliveryId));
      await recordOutcomes(
        pool,
        leased.map((one) => attemptOf(one, { status: "released", dueAtMs: Date.now() }, null)),
      );
    }
  });
  for (let n = 0; n < 20; n++) {
    await pauseNow();
    await resume();
    await step(null, 50);
  }
  await pauseNow();
  busy.isDone = true;
  await Promise.all(claimers);
  await changeRows(database.pool, "endpoints", {}, { gather_at: new Date(), gather_from: null });
  await step();
  expect(await held()).toEqual([...ids].sort());
  expect(await countRows(database.pool, "open_deliveries")).toBe(0);
  expect(claimed.length).toBeGreaterThan(0);
});
