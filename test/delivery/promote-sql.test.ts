import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, it } from "vitest";
import {
  createPromoting,
  lead,
  promoteDue,
  sweepStuckJobs,
  takeBackOverflow,
} from "../../src/delivery/promote-sql.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { attemptOf, claim, claimOne, LEASE_MS, openRow, publishAt } from "../support/delivery-rows.ts";
import {
  begin,
  changeRows,
  deleteRows,
  forgetOpen,
  insertAccount,
  insertRow,
  rowOf,
} from "../support/installation.ts";
import { openForDispatch } from "../support/open.ts";
import { addJobs, jobIds, lockJobs, takeWakeups } from "../support/wakeup-jobs.ts";

const { database, pool } = await openForDispatch();
let accountId: string;
let published = 0;

beforeEach(async () => {
  await forgetOpen(database.pool);
  await takeWakeups(database.pool);
  accountId = await insertAccount(database.pool, "https://receiver.example.com/");
});

/** From publishing or promoting until the promoter looks again. */
const WAKE_AFTER_MS = 15_000;
const T0 = new Date(Date.now() - (Date.now() % 1000));
const later = (ms: number) => new Date(T0.getTime() + ms);
const ago = (ms: number) => new Date(Date.now() - ms);

/** Published, and the wake-ups that publishing made already taken. */
async function publishSome(count: number, webhookUrl: string | null = null): Promise<string[]> {
  const ids = await publishAt(
    pool,
    accountId,
    T0,
    Array.from({ length: count }, () => `p-${published++}`),
    webhookUrl,
  );
  await takeWakeups(database.pool);
  return ids;
}

async function promote(at: Date, limits: { rows?: number; lane?: number; jobs?: number } = {}) {
  const { rows } = await pool.query<{ looked: number; woken: number }>(
    "select looked, woken from sealpost.promote($1, $2, $3, $4)",
    [at, limits.rows ?? 10_000, limits.lane ?? 1_000, limits.jobs ?? 200],
  );
  return rows[0]!;
}

const wokenAt = async (...given: Parameters<typeof promote>) => {
  await promote(...given);
  return (await takeWakeups(database.pool)).ids;
};

describe("promoting", () => {
  it("leaves a fresh delivery to the wake-up that publishing made, and then does not trust it", async () => {
    const [id] = await publishSome(1);
    expect(await promote(later(WAKE_AFTER_MS - 1))).toEqual({ looked: 0, woken: 0 });
    expect(await wokenAt(later(WAKE_AFTER_MS))).toEqual([id]);
    expect((await openRow(pool, id!))!.wake_at).toEqual(later(2 * WAKE_AFTER_MS));
    expect(await wokenAt(later(2 * WAKE_AFTER_MS - 1))).toEqual([]);
    expect(await wokenAt(later(2 * WAKE_AFTER_MS))).toEqual([id]);
  });

  it("wakes a retry when it is due, to the millisecond", async () => {
    const [id] = await publishSome(1);
    const delivery = await claimOne(pool, id!, { at: T0 });
    const dueAtMs = later(3_333).getTime();
    await recordOutcomes(pool, [attemptOf(delivery, { status: "failed", dueAtMs })]);
    expect(await wokenAt(later(3_332))).toEqual([]);
    expect(await wokenAt(later(3_333))).toEqual([id]);
  });

  it("passes over what is under way, and wakes it when its lease has ended", async () => {
    const [id] = await publishSome(1);
    await claimOne(pool, id!, { at: later(10) });
    expect(await promote(later(WAKE_AFTER_MS))).toEqual({ looked: 0, woken: 0 });
    expect(await promote(later(10 + LEASE_MS - 1))).toEqual({ looked: 0, woken: 0 });
    expect(await wokenAt(later(10 + LEASE_MS))).toEqual([id]);
  });

  it("notices the end of a lease that is shorter than its own patience", async () => {
    const [id] = await publishSome(1);
    await claimOne(pool, id!, { at: later(10), leaseMs: 5_100 });
    expect(await wokenAt(later(5_110))).toEqual([id]);
  });

  it("puts 50 ids into a job", async () => {
    const ids = await publishSome(120);
    expect(await promote(later(WAKE_AFTER_MS))).toEqual({ looked: 120, woken: 120 });
    const wakeups = await takeWakeups(database.pool);
    expect(wakeups.jobs).toBe(3);
    expect(wakeups.ids.sort()).toEqual([...ids].sort());
  });

  it("gives a lane its share, and looks at the rest of it a second later for every share before", async () => {
    const flood = await publishSome(25);
    const other = await publishSome(2, "https://other.example.com/");
    const at = later(WAKE_AFTER_MS);
    expect(await promote(at, { lane: 10 })).toEqual({ looked: 27, woken: 12 });
    const woken = (await takeWakeups(database.pool)).ids;
    expect(woken.filter((id) => other.includes(id))).toHaveLength(2);
    const waits = new Map<number, number>();
    for (const id of flood.filter((one) => !woken.includes(one))) {
      const waitMs = (await openRow(pool, id))!.wake_at.getTime() - at.getTime();
      waits.set(waitMs, (waits.get(waitMs) ?? 0) + 1);
    }
    expect(waits).toEqual(
      new Map([
        [1_000, 10],
        [2_000, 5],
      ]),
    );
  });

  it("looks at that rest the more seldom, the longer it has been due, but every minute", async () => {
    await publishSome(15);
    const restOf = async (dueForMs: number) => {
      const at = later(dueForMs);
      await promote(at, { lane: 10 });
      await takeWakeups(database.pool);
      const { rows } = await pool.query("select wake_at from sealpost.open_deliveries");
      const restsMs = rows.map(({ wake_at }) => wake_at.getTime() - at.getTime());
      return restsMs.filter((ms) => ms !== WAKE_AFTER_MS);
    };
    expect(await restOf(160_000)).toEqual(Array(5).fill(10_000));
    expect(await restOf(3_600_000)).toEqual(Array(5).fill(60_000));
  });

  it.each([
    ["its own URL", "https://unproven.example.com/in", "https://unproven.example.com"],
    ["the endpoint", null, "https://receiver.example.com"],
  ])("puts off all but a few that wait for %s to prove itself, until it has", async (_, url, origin) => {
    const at = later(WAKE_AFTER_MS);
    await insertRow(database.pool, "receivers", { account_id: accountId, origin, next_at: at });
    const waiting = await publishSome(30, url);
    const others = await publishSome(30, "https://other.example.com/");
    const limits = { lane: 100 };
    expect(await promote(at, limits)).toEqual({ looked: 60, woken: 35 });
    const { ids } = await takeWakeups(database.pool);
    expect(ids.filter((id) => others.includes(id))).toHaveLength(30);
    expect(await promote(later(2 * WAKE_AFTER_MS + 90_000), limits)).toMatchObject({ looked: 35 });
    await promote(later(WAKE_AFTER_MS + 240_000), limits);
    expect((await takeWakeups(database.pool)).ids.length, "in the end, all of them").toBe(60 + 35);
    const { rows } = await pool.query("select sealpost.lane($1, $2)::text as lane", [accountId, url]);
    const overflow = { accountId, lane: rows[0]!.lane, fromId: waiting.toSorted()[0]!, room: 100 };
    await changeRows(database.pool, "open_deliveries", {}, { wake_at: later(200_000) });
    const [taken] = await takeBackOverflow(pool, [overflow]);
    expect([...taken!.deliveryIds].sort(), "put off, but nobody's").toEqual(waiting.toSorted());
  });

  it("looks seldom at what waits for the proofs of many receivers, of each a few", async () => {
    const at = later(WAKE_AFTER_MS);
    for (const name of ["a", "b", "c", "d"]) {
      const origin = `https://${name}.example.com`;
      await insertRow(database.pool, "receivers", { account_id: accountId, origin, next_at: at });
      await publishSome(3, `${origin}/in`);
    }
    await changeRows(database.pool, "open_deliveries", {}, { due_at: later(-3_600_000) });
    expect(await promote(at)).toEqual({ looked: 12, woken: 12 });
    expect(await promote(later(WAKE_AFTER_MS + 119_000))).toEqual({ looked: 0, woken: 0 });
    expect(await promote(later(WAKE_AFTER_MS + 240_000))).toEqual({ looked: 12, woken: 12 });
  });

  it("shares a step out in turns, so that no lane stands behind another's thousand", async () => {
    await publishSome(20);
    const other = await publishSome(1, "https://other.example.com/");
    expect((await wokenAt(later(WAKE_AFTER_MS), { lane: 10 })).indexOf(other[0]!)).toBeLessThanOrEqual(1);
  });

  it("looks at so many rows a step, the longest due first", async () => {
    const first = await publishSome(3);
    await database.pool.query("update sealpost.open_deliveries set wake_at = wake_at - interval '1 second'");
    await publishSome(3, "https://other.example.com/");
    expect(await promote(later(WAKE_AFTER_MS), { rows: 3 })).toEqual({ looked: 3, woken: 3 });
    expect((await takeWakeups(database.pool)).ids.sort()).toEqual([...first].sort());
  });

  it("adds nothing while enough wake-ups wait, and goes on when they have gone", async () => {
    const [id] = await publishSome(1);
    await addJobs(database.pool, "deliver", 3);
    expect(await promote(later(WAKE_AFTER_MS), { jobs: 3 })).toEqual({ looked: 0, woken: 0 });
    await lockJobs(database.pool);
    expect(await promote(later(WAKE_AFTER_MS), { jobs: 3 })).toEqual({ looked: 1, woken: 1 });
    expect((await openRow(pool, id!))!.wake_at).toEqual(later(2 * WAKE_AFTER_MS));
  });

  it("does not wait for other people's jobs in the same queue", async () => {
    await publishSome(1);
    await addJobs(database.pool, "send_invoice", 5);
    expect(await promote(later(WAKE_AFTER_MS), { jobs: 3 })).toEqual({ looked: 1, woken: 1 });
  });

  it("by several at once wakes each delivery once", async () => {
    const ids = await publishSome(300);
    await Promise.all(Array.from({ length: 4 }, () => promote(later(WAKE_AFTER_MS), { rows: 100 })));
    const { ids: woken } = await takeWakeups(database.pool);
    expect(new Set(woken).size).toBe(woken.length);
    await promote(later(WAKE_AFTER_MS));
    const rest = (await takeWakeups(database.pool)).ids;
    expect([...woken, ...rest].sort()).toEqual([...ids].sort());
  });

  it("stands in nobody's way: a claim of the same rows just misses those", async () => {
    const ids = await publishSome(50);
    const [, claimed] = await Promise.all([
      promote(later(WAKE_AFTER_MS)),
      claim(pool, ids, { at: later(WAKE_AFTER_MS) }),
    ]);
    const woken = new Set((await takeWakeups(database.pool)).ids);
    // Whoever was missed by one was taken by the other.
    const leased = new Set(claimed.deliveries.map((delivery) => delivery.deliveryId));
    expect(ids.filter((id) => !woken.has(id) && !leased.has(id))).toEqual([]);
  });

  it("says whether there is more", async () => {
    await publishSome(2);
    expect(await promoteDue(pool, later(WAKE_AFTER_MS))).toEqual({ looked: 2, woken: 2, isFull: false });
  });
});

describe("stuck wake-ups", () => {
  it("are swept away five minutes after a worker took them, and no others", async () => {
    await addJobs(database.pool, "deliver", 3);
    const [stuck, ...others] = await jobIds(database.pool);
    await lockJobs(database.pool, "5 minutes 1 second", [stuck!]);
    await lockJobs(database.pool, "4 minutes 50 seconds", [others[0]!]);
    expect(await sweepStuckJobs(database.pool)).toBe(1);
    expect(await jobIds(database.pool)).toEqual(others);
  });
});

describe("other people's jobs", () => {
  it("are not swept away, however long they take", async () => {
    await takeWakeups(database.pool);
    await addJobs(database.pool, "send_invoice");
    await lockJobs(database.pool, "1 hour");
    expect(await sweepStuckJobs(database.pool)).toBe(0);
  });
});

describe("leading", () => {
  beforeEach(() => deleteRows(database.pool, "leader"));

  it("goes on after the database's clock was set back", async () => {
    const row = { holder: randomUUID(), until: new Date(Date.now() + 3_600_000) };
    await insertRow(database.pool, "leader", row);
    expect(await lead(pool, randomUUID(), 2_500)).toMatchObject({ leads: true });
  });

  it("keeps where it looks from, but for a look at everything", async () => {
    const holder = randomUUID();
    const lookedFrom = async () => (await rowOf(database.pool, "leader", {})).looked_from;
    await lead(pool, holder, 2_500, null);
    expect(await lookedFrom()).toBeNull();
    await lead(pool, holder, 2_500, T0.getTime());
    await lead(pool, holder, 2_500, Number.POSITIVE_INFINITY);
    await lead(pool, holder, 2_500, null);
    expect(await lookedFrom()).toEqual(T0);
  });

  it("goes on where a look at everything takes so long that it fails", async () => {
    const asked: unknown[] = [];
    let isSlow = true;
    const seen = {
      query: async ({ values }: { values: unknown[] }) => {
        asked.push(values[2]);
        if (isSlow && values[2] === null) throw new Error("canceling statement due to statement timeout");
        return { rows: [{ leads: true, isDue: false, isPaced: false, atMs: 100_000 }] };
      },
    };
    const options = { leaseMs: 20_000, jobsFrom: () => "-infinity", onClock: () => undefined };
    const promoting = createPromoting(seen as unknown as typeof pool, options);
    await expect(promoting.lead("holder", 2_500)).rejects.toThrow("statement timeout");
    isSlow = false;
    for (const _ of [1, 2]) expect(await promoting.lead("holder", 2_500)).toMatchObject({ leads: true });
    // Everything; nothing, only to lead; from then on what came since.
    expect(asked).toEqual([null, Number.POSITIVE_INFINITY, 50_000]);
  });

  it("is one's for a while, as long as one asks again in time", async () => {
    const [first, second] = [randomUUID(), randomUUID()];
    expect(await lead(pool, first, 60_000)).toMatchObject({ leads: true });
    expect(await lead(pool, second, 60_000)).toMatchObject({ leads: false });
    expect(await lead(pool, first, 60_000)).toMatchObject({ leads: true });
    // As if its time were up.
    await changeRows(database.pool, "leader", {}, { until: ago(1) });
    expect(await lead(pool, second, 60_000)).toMatchObject({ leads: true });
    expect(await lead(pool, first, 60_000)).toMatchObject({ leads: false });
  });

  it("goes to one of many who ask at once", async () => {
    await deleteRows(database.pool, "leader");
    const answers = await Promise.all(Array.from({ length: 6 }, () => lead(pool, randomUUID(), 60_000)));
    expect(answers.filter(({ leads }) => leads)).toHaveLength(1);
  });

  it("is not taken from a holder by one that had begun before, and waited for it", async () => {
    await deleteRows(database.pool, "leader");
    const { client, commit } = await begin(pool);
    // Its transaction has begun, and so its now() is before the holder's.
    await client.query("select now()");
    expect(await lead(pool, randomUUID(), 60_000)).toMatchObject({ leads: true });
    expect(await lead(client as unknown as typeof pool, randomUUID(), 60_000)).toMatchObject({
      leads: false,
    });
    await commit();
  });
});
