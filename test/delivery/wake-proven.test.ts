import type { Pool } from "pg";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createWakingProven } from "../../src/delivery/promote-sql.ts";
import { claimOne, publishAt } from "../support/delivery-rows.ts";
import { changeRows, forgetOpen, insertAccount, insertRow, rowsOf } from "../support/installation.ts";
import { openForDispatch } from "../support/open.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";

const { database, pool } = await openForDispatch();
let accountId: string;
let published = 0;

beforeEach(async () => {
  await forgetOpen(database.pool);
  accountId = await insertAccount(database.pool, "https://endpoint.example.com/in");
});

const T0 = new Date(Date.now() - (Date.now() % 1000));
const later = (ms: number) => new Date(T0.getTime() + ms);

/** Published, and looked at by the promoter while their receiver rested. */
async function putOff(
  webhookUrl: string | null,
  { count = 1, owner = accountId, wake_at = later(240_000), due_at = later(-60_000) } = {},
): Promise<string[]> {
  const names = Array.from({ length: count }, () => `w-${published++}`);
  const ids = await publishAt(pool, owner, later(-60_000), names, webhookUrl);
  await takeWakeups(database.pool);
  for (const delivery_id of ids)
    await changeRows(database.pool, "open_deliveries", { delivery_id }, { wake_at, due_at });
  return ids;
}

async function prove(origin: string, provenMs = -1_000, owner = accountId): Promise<void> {
  const proven_at = later(Math.max(provenMs, -1_000));
  const row = { account_id: owner, origin, proven_at, proven_since: later(provenMs) };
  await insertRow(database.pool, "receivers", row);
}

type Woken = { readonly woken: number; readonly is_all: boolean };

async function wakeProven({ since = later(-5_000), lane = 1_000, seconds = 60 } = {}): Promise<Woken> {
  const text = "select woken, is_all from sealpost.wake_proven($1, $2, $3, $4)";
  return (await pool.query<Woken>(text, [since, lane, seconds, T0])).rows[0]!;
}

const all = (woken: number) => ({ woken, is_all: true });

/** In how many ms they are looked at again. */
async function wakesOf(ids: readonly string[]): Promise<number[]> {
  const rows = await rowsOf(database.pool, "open_deliveries");
  return ids.map((id) => {
    const { wake_at } = rows.find(({ delivery_id }) => delivery_id === id)!;
    return wake_at.getTime() - T0.getTime();
  });
}

describe("what was put off for a receiver", () => {
  it.each([
    ["at a webhook_url", "https://r.example.com/in?a=1", "https://r.example.com"],
    ["at a URL with its port", "https://R.example.com:443/in", "https://r.example.com"],
    ["at another port", "https://r.example.com:8443", "https://r.example.com:8443"],
    ["at the endpoint", null, "https://endpoint.example.com"],
  ])("is woken when it is proven: %s", async (_, url, origin) => {
    const ids = await putOff(url, { count: 3 });
    const others = [
      ...(await putOff("https://unproven.example.com/in")),
      ...(await putOff(url === null ? "https://other.example.com" : null)),
      ...(await putOff(url, {
        owner: await insertAccount(database.pool, "https://endpoint.example.com/in"),
      })),
    ];
    expect(await wakeProven()).toEqual(all(0));
    await prove(origin);
    expect(await wakeProven()).toEqual(all(3));
    expect(Math.max(...(await wakesOf(ids)))).toBeLessThan(10);
    expect(await wakesOf(others)).toEqual([240_000, 240_000, 240_000]);
  });

  it("is woken when the endpoint has been changed to one that was proven long ago", async () => {
    const [own, ids] = [await putOff("https://old.example.com/in"), await putOff(null)];
    const provenUntil = async (provenMs: number) => {
      const proven_at = later(provenMs);
      await changeRows(database.pool, "receivers", { account_id: accountId }, { proven_at });
    };
    const change = async (updatedMs: number) => {
      const changed = { url: "https://old.example.com/other", updated_at: later(updatedMs) };
      await changeRows(database.pool, "endpoints", { account_id: accountId }, changed);
    };
    await prove("https://old.example.com", -86_400_000);
    expect(await wakeProven()).toEqual(all(0));
    await change(-60_000);
    expect(await wakeProven()).toEqual(all(0));
    await change(-1_000);
    await provenUntil(-31 * 86_400_000);
    expect(await wakeProven(), "it has to prove itself again").toEqual(all(0));
    await provenUntil(-1_000);
    expect(await wakeProven()).toEqual(all(1));
    expect(await wakesOf([...ids, ...own])).toEqual([0, 240_000]);
  });

  it("stays where it is, if it is not due, under way, or at hand", async () => {
    const url = "https://r.example.com/in";
    const notDue = await putOff(url, { due_at: later(200_000) });
    const atHand = await putOff(url, { wake_at: later(16_900) });
    const underWay = await putOff(url);
    await claimOne(pool, underWay[0]!, { at: later(-500) });
    await changeRows(
      database.pool,
      "open_deliveries",
      { delivery_id: underWay[0] },
      { wake_at: later(240_000) },
    );
    await prove("https://r.example.com");
    expect(await wakeProven()).toEqual(all(0));
    expect(await wakesOf([...notDue, ...atHand, ...underWay])).toEqual([240_000, 16_900, 240_000]);
  });

  it("comes as the promoter wakes it: so many of a lane in a second, and twice as many of an account", async () => {
    const lanes = ["a", "b", "c"].map((name) => `https://${name}.example.com`);
    const ids = [];
    for (const url of lanes) ids.push(...(await putOff(url, { count: 16 })));
    for (const origin of lanes) await prove(origin);
    expect(await wakeProven({ lane: 10 })).toEqual(all(48));
    const wakes = await wakesOf(ids);
    for (const second of [0, 1, 2]) {
      const then = wakes.flatMap((wake, n) =>
        Math.floor(wake / 1_000) === second ? [Math.floor(n / 16)] : [],
      );
      expect(then).toHaveLength(16);
      for (const lane of [0, 1, 2]) expect(then.filter((of) => of === lane).length).toBeLessThan(7);
    }
    const alone = await putOff("https://a.example.com", { count: 12 });
    await wakeProven({ lane: 10 });
    expect((await wakesOf(alone)).filter((wake) => wake < 1_000)).toHaveLength(8);
  });

  it("comes for some seconds, and the next look goes on; nothing is read that is not put off", async () => {
    const ids = await putOff("https://r.example.com", { count: 40, wake_at: later(18_000) });
    const late = await putOff("https://r.example.com", { wake_at: later(310_000) });
    await prove("https://r.example.com");
    const other = await insertAccount(database.pool);
    const theirs = await putOff("https://r.example.com", { count: 5, owner: other });
    await prove("https://r.example.com", -1_000, other);
    expect(await wakeProven({ lane: 5, seconds: 5 })).toEqual({ woken: 25, is_all: false });
    expect(Math.max(...(await wakesOf(theirs)))).toBe(1_000);
    expect((await wakesOf(ids)).filter((wake) => wake === 18_000)).toHaveLength(20);
    expect(await wakeProven({ lane: 5, seconds: 5 })).toEqual(all(20));
    expect(Math.max(...(await wakesOf(ids)))).toBe(4_750);
    expect(await wakesOf(late), "nothing is put off for so long").toEqual([310_000]);
  });

  it("is passed over while somebody else changes it", async () => {
    const ids = await putOff("https://r.example.com", { count: 2 });
    await prove("https://r.example.com");
    const client = await database.pool.connect();
    await client.query("begin; select from sealpost.open_deliveries limit 1 for update");
    expect(await wakeProven()).toEqual(all(1));
    await client.query("rollback");
    client.release();
    expect((await wakesOf(ids)).filter((wake) => wake === 240_000)).toHaveLength(1);
  });
});

describe("waking it", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  /** What it asks for, of a database that answers as it is told to; it fails if there is no answer. */
  function bench(answers: readonly ({ isAll: boolean; atMs: number; tookMs: number } | null)[]) {
    let nowMs = 0;
    vi.spyOn(performance, "now").mockImplementation(() => nowMs);
    const asked: (number | null)[] = [];
    const query = async ({ values }: { values: [number | null] }) => {
      const answer = answers[asked.length];
      asked.push(values[0]);
      nowMs += answer?.tookMs ?? 500;
      if (answer === null) throw new Error("canceling statement due to statement timeout");
      return { rows: [answer] };
    };
    const wake = createWakingProven({ query } as unknown as Pool);
    const step = async (afterMs: number) => {
      nowMs += afterMs;
      await wake();
    };
    return { asked, step };
  }

  it("begins with all, goes on while there is more, and then looks for proofs since a while before", async () => {
    const { asked, step } = bench([
      { isAll: false, atMs: 100_000, tookMs: 0 },
      { isAll: true, atMs: 105_000, tookMs: 0 },
      { isAll: false, atMs: 110_000, tookMs: 0 },
      { isAll: true, atMs: 115_000, tookMs: 0 },
      { isAll: true, atMs: 120_000, tookMs: 0 },
    ]);
    for (const _ of [1, 2, 3, 4, 5]) await step(5_000);
    expect(asked).toEqual([null, null, 90_000, 90_000, 100_000]);
  });

  it("spends a fifth of the time on it, also where it fails", async () => {
    const { asked, step } = bench([
      { isAll: true, atMs: 100_000, tookMs: 500 },
      null,
      { isAll: true, atMs: 120_000, tookMs: 0 },
    ]);
    await step(0);
    await step(1_900);
    expect(asked).toHaveLength(1);
    await expect(step(100)).rejects.toThrow("timeout");
    await step(1_900);
    expect(asked).toHaveLength(2);
    await step(100);
    expect(asked).toEqual([null, 85_000, 85_000]);
  });

  it("begins with what was proven five minutes ago", async () => {
    const ids = [];
    for (const [name, provenMs] of [
      ["four", -4 * 60_000],
      ["six", -6 * 60_000],
    ] as const) {
      ids.push(...(await putOff(`https://${name}.example.com`)));
      await prove(`https://${name}.example.com`, provenMs);
    }
    await createWakingProven(pool)();
    const [four, six] = await wakesOf(ids);
    expect(four).toBeLessThan(200_000);
    expect(six).toBe(240_000);
  });
});
