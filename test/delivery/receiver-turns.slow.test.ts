// The turns of receivers that have proven nothing, as attempts and the receiver check ask for them.
import { describe, expect, it } from "vitest";
import { endTurn, forgetReceivers, takeTurn } from "../../src/delivery/receivers-sql.ts";
import {
  begin,
  changeRows,
  countRows,
  insertAccount,
  insertRow,
  rowOf,
  rowsOf,
} from "../support/installation.ts";
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

  /** So many names of an account, from n1 on, that wait at an address. */
  const insertWaiting = (
    account: string,
    address: string,
    names: number,
    nextAt = new Date(Date.now() + 3_600_000),
  ) =>
    database.pool.query(
      `insert into sealpost.receivers (account_id, origin, next_at, address)
       select $1, 'https://n' || n || '.example.com', $4, $2 from generate_series(1, $3) as n`,
      [account, address, names, nextAt],
    );

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
    expect(waitMs).toBeLessThanOrEqual(6_700);
    await endTurn(database.pool, account, "https://a.example.com", true);
    expect(await asked(account, "https://a.example.com", address)).toEqual({ isProven: true, waitMs: null });
  });

  it("is asked for and ended without waiting for a disk, or for whoever has the address", async () => {
    const account_id = await insertAccount(database.pool);
    const [address, origin, other] = ["192.0.2.112", "https://one.example.com", "https://other.example.com"];
    await database.pool.query(
      `create function public.refuse_disk() returns trigger language plpgsql as $$ begin
         if current_setting('synchronous_commit') <> 'off' then raise 'it waits for the disk'; end if;
         return null;
       end $$;
       create constraint trigger no_disk after insert or update on sealpost.receivers
       deferrable initially deferred for each row execute function public.refuse_disk()`,
    );
    await expect(insertWaiting(account_id, address, 1)).rejects.toThrow("it waits for the disk");
    expect(await asked(account_id, origin, { address })).toEqual({ isProven: false, waitMs: null });
    await endTurn(database.pool, account_id, origin, false);
    await changeRows(database.pool, "receiver_addresses", { address }, { next_at: new Date(0) });
    const has = await begin(database.pool, "select from sealpost.receiver_addresses for update");
    expect((await asked(account_id, other, { address })).waitMs).toBeGreaterThan(0);
    await has.commit();
    await database.pool.query("drop trigger no_disk on sealpost.receivers");
  });

  it("leaves any minute ten POSTs at most, even if the first is as late as the next turn", async () => {
    const account_id = await insertAccount(database.pool);
    await asked(account_id, "https://late.example.com", { address: "192.0.2.111" });
    const { next_at, busy_until } = await rowOf(database.pool, "receivers", { account_id });
    expect(9 * (next_at - busy_until + 20_000)).toBeGreaterThan(60_000);
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

  it("is not taken by a stream of names that led elsewhere before, either", async () => {
    const greedy = await Promise.all(Array.from({ length: 3 }, () => insertAccount(database.pool)));
    const other = await insertAccount(database.pool);
    const address = "192.0.2.78";
    const rows = greedy.map((account, n) => insertWaiting(account, `192.0.2.${100 + n}`, 500, new Date(0)));
    await Promise.all(rows);
    await asked(greedy[0]!, "https://n501.example.com", { address });
    await asked(other, "https://other.example.com", { address });
    const startedAtMs = performance.now();
    let turns = 0;
    for (let n = 1; n <= 150; n++) {
      await changeRows(database.pool, "receiver_addresses", { address }, { next_at: new Date(0) });
      for (const account of greedy)
        if ((await asked(account, `https://n${n}.example.com`, { address })).waitMs === null) turns++;
    }
    // One of each account at first, and one in twice as many as there are accounts from then on.
    const shareMs = 2 * 4 * 1_050;
    expect(turns).toBeGreaterThan(0);
    expect(turns).toBeLessThanOrEqual(3 * (1 + (performance.now() - startedAtMs) / shareMs));
  });

  it("comes to another account's first name, however many wait", async () => {
    const greedy = await insertAccount(database.pool);
    const other = await insertAccount(database.pool);
    const address = "192.0.2.99";
    await insertWaiting(greedy, address, 2_500);
    const { waitMs } = await asked(other, "https://other.example.com", { address });
    expect(waitMs, "behind whoever waits").toBeLessThan(2 * 1_050);
    await changeRows(database.pool, "receivers", { account_id: other }, { next_at: new Date() });
    expect(await asked(other, "https://other.example.com", { address })).toEqual({
      isProven: false,
      waitMs: null,
    });
  });

  it("is not had by asking again with a further address, while others wait there", async () => {
    const greedy = await insertAccount(database.pool);
    const address = "192.0.2.55";
    const names = 300;
    for (let n = 0; n < 10; n++) {
      const account_id = await insertAccount(database.pool);
      const row = { account_id, origin: "https://one.example.com", next_at: new Date(), address };
      await insertRow(database.pool, "receivers", row);
    }
    const isMyTurn = { next_at: new Date(0), busy_until: null };
    const startedAtMs = performance.now();
    let turns = 0;
    for (let n = 0; n < names; n++) {
      // Its other addresses are its own, and accept no connection.
      const [name, first, last] = [
        `https://n${n % 100}.example.com`,
        `198.51.100.${n % 250}`,
        `203.0.113.${n % 250}`,
      ];
      await changeRows(database.pool, "receivers", { account_id: greedy, origin: name }, isMyTurn);
      for (const each of [first, address, last])
        await changeRows(database.pool, "receiver_addresses", { address: each }, { next_at: new Date(0) });
      expect((await asked(greedy, name, { address: first })).waitMs).toBe(null);
      const { waitMs } = await asked(greedy, name, { address, isFurther: true });
      if (waitMs === null) turns++;
      else await asked(greedy, name, { address: last, isFurther: true });
    }
    const shareMs = 11 * 1_050;
    expect(turns).toBeGreaterThan(0);
    expect(turns).toBeLessThanOrEqual(1 + (performance.now() - startedAtMs) / shareMs);
    const other = await insertAccount(database.pool);
    await changeRows(database.pool, "receiver_addresses", { address }, { next_at: new Date(0) });
    await asked(other, "https://new.example.com", { address: "198.18.0.1" });
    const { waitMs } = await asked(other, "https://new.example.com", { address, isFurther: true });
    expect(waitMs, "another account's first name").toBe(null);
  });

  it("comes to an account's second name, too, however many wait", async () => {
    const greedy = await insertAccount(database.pool);
    const other = await insertAccount(database.pool);
    const address = "192.0.2.44";
    await insertWaiting(greedy, address, 1_999);
    for (const name of ["first", "second"]) {
      const origin = `https://${name}.example.com`;
      await asked(other, origin, { address });
      await changeRows(database.pool, "receivers", { account_id: other, origin }, { next_at: new Date(0) });
      await changeRows(database.pool, "receiver_addresses", { address }, { next_at: new Date(0) });
      expect(await asked(other, origin, { address }), name).toEqual({ isProven: false, waitMs: null });
    }
  });

  it("is not waited for by all of an account's names until the same moment, however many there are", async () => {
    const many = await insertAccount(database.pool);
    const address = "192.0.2.67";
    await insertWaiting(many, address, 1_900);
    for (let n = 0; n < 3; n++) await insertWaiting(await insertAccount(database.pool), address, 1);
    const waits: number[] = [];
    for (let n = 0; n < 60; n++)
      waits.push((await asked(many, `https://m${n}.example.com`, { address, isFirst: false })).waitMs!);
    expect(Math.max(...waits)).toBeLessThanOrEqual(20 * 60_000);
    for (const minute of [7, 11, 15])
      expect(
        waits.filter((ms) => ms >= minute * 60_000 && ms < (minute + 4) * 60_000).length,
      ).toBeGreaterThan(3);
  });

  it("is waited for by as many names of each account, however many accounts have many", async () => {
    const address = "192.0.2.66";
    const accounts = await Promise.all(Array.from({ length: 60 }, () => insertAccount(database.pool)));
    for (let n = 0; n < 50; n++)
      await Promise.all(accounts.map((one) => asked(one, `https://n${n}.example.com`, { address })));
    const newcomer = await insertAccount(database.pool);
    await asked(newcomer, "https://new.example.com", { address });
    const { rows } = await database.pool.query<{ account_id: string; names: number }>(
      "select account_id, count(*)::integer as names from sealpost.receivers where address = $1 group by 1",
      [address],
    );
    const names = new Map(rows.map((row) => [row.account_id, row.names]));
    expect(names.get(newcomer)).toBe(1);
    names.delete(newcomer);
    const counts = [...names.values()].sort((one, other) => one - other);
    expect(counts).toHaveLength(60);
    expect(counts.at(-1)).toBeLessThanOrEqual(2 * counts[0]!);
    // Who asks at the same moment as others does not see them.
    expect(counts.reduce((sum, count) => sum + count)).toBeLessThan(2_000 + accounts.length);
  });

  it("is not waited for by more names than may be counted, once another account has come", async () => {
    const greedy = await insertAccount(database.pool);
    const other = await insertAccount(database.pool);
    const address = "192.0.2.88";
    await insertWaiting(greedy, address, 2_100, new Date());
    await asked(other, "https://other.example.com", { address });
    for (let n = 1; n <= 200; n++) await asked(greedy, `https://n${n}.example.com`, { address });
    expect(await countRows(database.pool, "sealpost.receivers", { address })).toBeLessThanOrEqual(2_000);
    expect(await countRows(database.pool, "sealpost.receivers", { address, account_id: other })).toBe(1);
  });

  it("comes as late as after any other, once the database's clock was set back by an hour", async () => {
    const account_id = await insertAccount(database.pool);
    const address = "192.0.2.33";
    const [one, other] = ["https://one.example.com", "https://other.example.com"];
    const ask = async (origin: string, changes = {}) =>
      (await asked(account_id, origin, { address, ...changes })).waitMs;
    /** What was set is an hour further ahead now. */
    const setBack = async () => {
      const { rows } = await database.pool.query(
        `with moved as (update sealpost.receiver_addresses set next_at = next_at + interval '1 hour' where address = $2)
         update sealpost.receivers
         set next_at = next_at + interval '1 hour', busy_until = busy_until + interval '1 hour'
         where account_id = $1 returning origin`,
        [account_id, address],
      );
      return rows.length;
    };
    expect(await ask(one)).toBe(null);
    expect(await setBack()).toBe(1);
    expect(await ask(one), "that attempt is still under way").toBe(1_000);
    const { busy_until } = await rowOf(database.pool, "receivers", { account_id });
    expect(busy_until.getTime(), "but for no longer than its lease").toBeLessThan(Date.now() + 30_000);
    await endTurn(database.pool, account_id, one, false);
    const rest = await ask(one);
    expect(rest).toBeGreaterThan(6_000);
    expect(rest).toBeLessThanOrEqual(6_700);
    expect(await ask(one), "and no longer each time it asks").toBeLessThan(rest!);
    expect(await ask(other), "one of them waits at the address").toBeLessThanOrEqual(2 * 1_050);
    const { next_at } = await rowOf(database.pool, "receiver_addresses", { address });
    expect(next_at.getTime() - Date.now()).toBeLessThanOrEqual(1_050);
    const due = { next_at: new Date(0) };
    await changeRows(database.pool, "receivers", { account_id }, due);
    await changeRows(database.pool, "receiver_addresses", { address }, due);
    expect(await ask(one)).toBe(null);
  });

  it("comes to a further address, too, once the clock was set back", async () => {
    const [waiting, account_id] = [await insertAccount(database.pool), await insertAccount(database.pool)];
    const address = "192.0.2.22";
    const origin = "https://one.example.com";
    const isFree = () =>
      changeRows(database.pool, "receiver_addresses", { address }, { next_at: new Date(0) });
    const further = async () => {
      await isFree();
      return (await asked(account_id, origin, { address, isFurther: true })).waitMs;
    };
    const row = { account_id: waiting, origin, next_at: new Date(), address };
    await insertRow(database.pool, "receivers", row);
    await asked(account_id, origin, { address: "198.51.100.22" });
    expect(await further()).toBe(null);
    expect(await further(), "another account waits there").toBeGreaterThan(0);
    const next_at = new Date(Date.now() + 3_600_000);
    await changeRows(database.pool, "receivers", { account_id, origin: address }, { next_at });
    expect(await further()).toBe(null);
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

  it("is needed again when a proof is 30 days old, which is forgotten then", async () => {
    const account_id = await insertAccount(database.pool);
    const prove = async (days: number) => {
      const [origin, proven_at] = [`https://d${days}.example.com`, new Date(Date.now() - days * 86_400_000)];
      await insertRow(database.pool, "receivers", { account_id, origin, proven_at, proven_since: proven_at });
      return origin;
    };
    const origins = [await prove(29), await prove(31)];
    await forgetReceivers(database.pool);
    const left = await rowsOf(database.pool, "receivers", { account_id });
    expect(left.map(({ origin }) => origin)).toEqual([origins[0]]);
    origins[1] = await prove(31);
    const turns = origins.map((origin, n) => asked(account_id, origin, { address: `192.0.3.${n}` }));
    expect((await Promise.all(turns)).map(({ isProven }) => isProven)).toEqual([true, false]);
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
