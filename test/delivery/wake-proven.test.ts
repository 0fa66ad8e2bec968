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

async function wakeProven(
  limits: { since?: Date; rows?: number; lane?: number; from?: Date | null } = {},
): Promise<{ woken: number; next_from: Date | null }> {
  const { since = later(-5_000), rows = 10_000, lane = 1_000, from = null } = limits;
  const text = "select woken, next_from from sealpost.wake_proven($1, $2, $3, $4, $5)";
  const found = await pool.query<{ woken: number; next_from: Date | null }>(text, [
    since,
    from,
    rows,
    lane,
    T0,
  ]);
  return found.rows[0]!;
}

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
    expect(await wakeProven()).toEqual({ woken: 0, next_from: null });
    await prove(origin);
    expect(await wakeProven()).toEqual({ woken: 3, next_from: null });
    expect(await wakesOf(ids)).toEqual([0, 0, 0]);
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
    expect(await wakeProven()).toEqual({ woken: 0, next_from: null });
    await change(-60_000);
    expect(await wakeProven()).toEqual({ woken: 0, next_from: null });
    await change(-1_000);
    await provenUntil(-31 * 86_400_000);
    expect(await wakeProven(), "it has to prove itself again").toEqual({ woken: 0, next_from: null });
    await provenUntil(-1_000);
    expect(await wakeProven()).toEqual({ woken: 1, next_from: null });
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
    expect(await wakeProven()).toEqual({ woken: 0, next_from: null });
    expect(await wakesOf([...notDue, ...atHand, ...underWay])).toEqual([240_000, 16_900, 240_000]);
  });

  it("comes as the promoter wakes it: so many of a lane in a second, and twice as many of an account", async () => {
    const lanes = ["a", "b", "c"].map((name) => `https://${name}.example.com`);
    const ids = [];
    for (const url of lanes) ids.push(...(await putOff(url, { count: 10 })));
    for (const origin of lanes) await prove(origin);
    expect(await wakeProven({ lane: 5 })).toEqual({ woken: 30, next_from: null });
    const wakes = await wakesOf(ids);
    for (const second of [0, 1, 2]) {
      const then = wakes.flatMap((wake, n) => (wake === second * 1_000 ? [Math.floor(n / 10)] : []));
      expect(then).toHaveLength(10);
      for (const lane of [0, 1, 2]) expect(then.filter((of) => of === lane).length).toBeLessThan(5);
    }
    const alone = await putOff("https://a.example.com", { count: 12 });
    await wakeProven({ lane: 5 });
    expect((await wakesOf(alone)).filter((wake) => wake === 0)).toHaveLength(5);
  });

  it("is looked for so many rows at a time, and never comes later than without", async () => {
    for (const n of [1, 2, 3]) await putOff("https://other.example.com", { wake_at: later(20_000 + n) });
    const ids = await putOff("https://r.example.com", { count: 8, wake_at: later(18_000) });
    await prove("https://r.example.com");
    const first = await wakeProven({ rows: 8, lane: 1 });
    expect(first).toEqual({ woken: 8, next_from: later(18_000) });
    const second = await wakeProven({ rows: 2, from: later(18_000) });
    expect(second).toEqual({ woken: 0, next_from: later(20_002) });
    const third = await wakeProven({ rows: 1, from: later(20_003) });
    expect(third, "others may have the same").toEqual({ woken: 0, next_from: later(20_004) });
    expect(await wakeProven({ rows: 2, from: later(20_003) })).toEqual({ woken: 0, next_from: null });
    const wakes = await wakesOf(ids);
    expect(Math.max(...wakes)).toBe(7_000);
    const more = await putOff("https://r.example.com", { count: 30, wake_at: later(18_000) });
    const late = await putOff("https://r.example.com", { wake_at: later(310_000) });
    await wakeProven({ lane: 1 });
    expect(Math.max(...(await wakesOf([...ids, ...more])))).toBe(18_000);
    expect(await wakesOf(late), "nothing is put off for so long").toEqual([310_000]);
  });

  it("is passed over while somebody else changes it", async () => {
    const ids = await putOff("https://r.example.com", { count: 2 });
    await prove("https://r.example.com");
    const client = await database.pool.connect();
    await client.query("begin; select from sealpost.open_deliveries limit 1 for update");
    expect(await wakeProven()).toEqual({ woken: 1, next_from: null });
    await client.query("rollback");
    client.release();
    expect((await wakesOf(ids)).sort((a, b) => a - b)).toEqual([0, 240_000]);
  });
});

describe("waking it", () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  /** What it asks for, of a database that answers as it is told to. */
  function bench(answers: readonly { nextFrom: string | null; atMs: number; tookMs: number }[]) {
    let nowMs = 0;
    vi.spyOn(performance, "now").mockImplementation(() => nowMs);
    const asked: [sinceMs: number | null, from: string | null][] = [];
    const query = async ({ values }: { values: [number | null, string | null] }) => {
      const { tookMs, ...row } = answers[asked.length]!;
      asked.push([values[0], values[1]]);
      nowMs += tookMs;
      return { rows: [row] };
    };
    const wake = createWakingProven({ query } as unknown as Pool);
    const step = async (afterMs: number, signal = new AbortController().signal) => {
      nowMs += afterMs;
      await wake(signal);
    };
    return { asked, step };
  }

  it("looks at everything, then for proofs since a while before, and spends a fifth of the time on it", async () => {
    const { asked, step } = bench([
      { nextFrom: "b", atMs: 100_000, tookMs: 300 },
      { nextFrom: null, atMs: 100_300, tookMs: 200 },
      { nextFrom: null, atMs: 103_000, tookMs: 0 },
    ]);
    await step(0);
    await step(1_900);
    expect(asked).toEqual([
      [null, null],
      [null, "b"],
    ]);
    await step(200);
    expect(asked[2]).toEqual([95_000, null]);
  });

  it("begins again where it was cut short", async () => {
    const { asked, step } = bench([
      { nextFrom: "b", atMs: 100_000, tookMs: 0 },
      { nextFrom: null, atMs: 103_000, tookMs: 0 },
    ]);
    await step(0, AbortSignal.abort());
    await step(1_000);
    expect(asked).toEqual([
      [null, null],
      [null, null],
    ]);
  });
});
