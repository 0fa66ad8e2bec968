// The turns of receivers that have proven nothing, as attempts and the receiver check ask for them.
import { describe, expect, it } from "vitest";
import { endTurn, forgetReceivers, takeTurn } from "../../src/delivery/receivers-sql.ts";
import { changeRows, insertAccount } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const database = await openDatabase();

describe("a turn", () => {
  const asked = (accountId: string, origin: string, changes = {}) =>
    takeTurn(database.pool, {
      accountId,
      origin,
      address: "192.0.2.1",
      isFirst: true,
      isFurther: false,
      leaseMs: 20_000,
      ...changes,
    });

  it("is one receiver's at a time, and ends with its attempt", async () => {
    const account = await insertAccount(database.pool);
    const address = { address: "192.0.2.1" };
    expect(await asked(account, "https://a.example.com", address)).toEqual({ isProven: false, waitMs: null });
    expect(await asked(account, "https://a.example.com", address)).toEqual({
      isProven: false,
      waitMs: 1_000,
    });
    await endTurn(database.pool, account, "https://a.example.com", false);
    const { waitMs } = await asked(account, "https://a.example.com", address);
    expect(waitMs).toBeGreaterThan(6_000);
    expect(waitMs).toBeLessThanOrEqual(6_500);
    await endTurn(database.pool, account, "https://a.example.com", true);
    expect(await asked(account, "https://a.example.com", address)).toEqual({ isProven: true, waitMs: null });
  });

  it("is not taken by a stream of new names while another account waits at the address", async () => {
    const greedy = await insertAccount(database.pool);
    const other = await insertAccount(database.pool);
    const address = { address: "192.0.2.77" };
    await asked(greedy, "https://n.example.com", address);
    let waitMs = (await asked(other, "https://other.example.com", address)).waitMs!;
    let untilMs = performance.now() + waitMs;
    let turns = 0;
    for (let n = 0; waitMs > 0; n++) {
      if ((await asked(greedy, `https://n${n}.example.com`, address)).waitMs === null) turns++;
      await database.pool.query("select pg_sleep(0.05)");
      if (performance.now() < untilMs) continue;
      waitMs = (await asked(other, "https://other.example.com", address)).waitMs ?? 0;
      untilMs = performance.now() + waitMs;
    }
    expect(turns).toBe(0);
  });

  it("comes to another account's first name, however many wait", async () => {
    const greedy = await insertAccount(database.pool);
    const other = await insertAccount(database.pool);
    const address = "192.0.2.99";
    await database.pool.query(
      `insert into sealpost.receivers (account_id, origin, next_at, address)
       select $1, 'https://n' || n || '.example.com', now() + interval '1 hour', $2 from generate_series(1, 2500) as n`,
      [greedy, address],
    );
    const { waitMs } = await asked(other, "https://other.example.com", { address });
    expect(waitMs, "behind whoever waits").toBeLessThan(2 * 1_050);
    await changeRows(database.pool, "receivers", { account_id: other }, { next_at: new Date() });
    expect(await asked(other, "https://other.example.com", { address })).toEqual({
      isProven: false,
      waitMs: null,
    });
  });

  it("is forgotten in steps, however many there are", async () => {
    const account = await insertAccount(database.pool);
    await database.pool.query(
      `insert into sealpost.receivers (account_id, origin, next_at)
       select $1, 'https://' || n, now() - interval '2 hours' from generate_series(1, 25000) as n`,
      [account],
    );
    const steps = [await forgetReceivers(database.pool), await forgetReceivers(database.pool)];
    expect([...steps, await forgetReceivers(database.pool)].map((many) => many >= 5_000)).toEqual(
      Array(3).fill(true),
    );
    expect(await forgetReceivers(database.pool)).toBe(0);
  });

  it("at one address is one in 1.05 s, and an account's many names come as often as another's one", async () => {
    const greedy = await insertAccount(database.pool);
    const other = await insertAccount(database.pool);
    const address = "2001:db8:1:2::";
    const first = await asked(greedy, "https://n0.example.com", { address: `${address}1` });
    expect(first.waitMs).toBe(null);
    const waits: number[] = [];
    for (let n = 1; n <= 200; n++) {
      const turn = await asked(greedy, `https://n${n}.example.com`, {
        address: `${address}${n.toString(16)}`,
      });
      waits.push(turn.waitMs!);
    }
    const { waitMs } = await asked(other, "https://other.example.com", { address: `${address}ffff` });
    expect(Math.max(...waits.slice(-20))).toBeGreaterThan(100_000);
    expect(waitMs, "two accounts wait").toBeLessThan(1_050 * 2);
    const elsewhere = await asked(other, "https://elsewhere.example.com", { address: "2001:db8:1:3::1" });
    expect(elsewhere.waitMs, "another network").toBe(null);
  });
});
