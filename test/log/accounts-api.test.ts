import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { insertRow, makePartitionsFrom } from "../support/installation.ts";
import { type Json, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const ACROSS = ["/v1/accounts", "/v1/accounts/replays", "/v1/accounts/audit", "/v1/search?q=acme"];

let database: TestDatabase;
let api: TestApi;
let staff: string;
let acme: TestAccount;
let globex: TestAccount;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  staff = await api.newKey(null);
  [acme, globex] = [await api.newAccount(), await api.newAccount()];
  await rename(api.account, "Initech");
  await rename(acme, "Acme, Inc.");
  await rename(globex, "Globex");
  await layDeliveries(database, acme.accountId, { abandoned: 3, failed: 2, succeeded: 4, pending: 1 });
  await layDeliveries(database, globex.accountId, { abandoned: 0, failed: 1, succeeded: 1, pending: 0 });
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const rename = ({ accountId }: TestAccount, name: string) =>
  database.pool.query("update sealpost.accounts set name = $2 where id = $1", [accountId, name]);
const asStaff = (path: string) => api.ask("GET", path, { key: staff });
const items = async (path: string) => (await asStaff(path)).body.items as Json[];
const names = async (path: string) => (await items(path)).map(({ name }) => name);

describe("what goes across accounts", () => {
  test.each(ACROSS)("is for staff, who name none: %s", async (path) => {
    expect(await asStaff(path)).toMatchObject({ status: 200 });
    // Its key has every scope, as no account's should.
    expect(await api.ask("GET", path)).toMatchObject({ status: 403, body: { code: "access_denied" } });
    const headers = { "x-account-id": acme.accountId };
    expect(await api.ask("GET", path, { headers })).toMatchObject({ status: 403 });
    const key = await api.newKey(null, ["webhooks:read"]);
    expect(await api.ask("GET", path, { key })).toMatchObject({ status: 403 });
    expect(await api.ask("GET", path, { key: null })).toMatchObject({ status: 401 });
  });

  test("no key of an account gets the scope for", async () => {
    const body = { name: "greedy", scopes: ["staff:read"] };
    const headers = { "x-account-id": acme.accountId };
    for (const asked of [{}, { key: staff, headers }]) {
      const refused = await api.ask("POST", "/v1/api-keys", { body, ...asked });
      expect(refused).toMatchObject({ status: 400 });
    }
    const viewer = { id: "u", label: "U" };
    const link = { viewer, permissions: ["staff:read"] };
    expect(await api.ask("POST", "/v1/console/links", { body: link })).toMatchObject({ status: 400 });
  });
});

describe("the list of accounts", () => {
  test("is of all, newest first, page by page", async () => {
    expect(await names("/v1/accounts")).toEqual(["Globex", "Acme, Inc.", "Initech"]);
    const first = (await asStaff("/v1/accounts?limit=2")).body;
    expect(first).toMatchObject({ total: 3, items: [{ name: "Globex" }, { name: "Acme, Inc." }] });
    expect(await names(`/v1/accounts?limit=2&cursor=${first.next_cursor}`)).toEqual(["Initech"]);
  });

  test("is searched by a part of the name, and by nothing else", async () => {
    expect(await names("/v1/accounts?name=ACME")).toEqual(["Acme, Inc."]);
    expect(await names("/v1/accounts?name=%25")).toEqual([]);
    expect(await asStaff("/v1/accounts?name=%00")).toMatchObject({ status: 400 });
    expect(await asStaff("/v1/accounts?name=nobody")).toMatchObject({ body: { total: 0, items: [] } });
  });

  test("tells which are failing, by what, since when, and when something arrived last", async () => {
    const failing = (await asStaff("/v1/accounts?failing=true")).body;
    const at = expect.stringMatching(/^\d{4}-/);
    expect(failing).toMatchObject({ total: 1, next_cursor: null });
    expect(failing.items).toEqual([
      {
        id: acme.accountId,
        name: "Acme, Inc.",
        created_at: at,
        endpoint_url: "https://hooks.example.com/in",
        endpoint_paused: false,
        abandoned: 3,
        failed: 2,
        leading: {
          target_host: "hooks.example.com",
          error_code: "status_503",
          reason: "attempts_exhausted",
          accepted_at: null,
        },
        since: at,
        last_success_at: at,
      },
    ]);
    expect(await asStaff("/v1/accounts?failing=true&name=a")).toMatchObject({ status: 400 });
    // The parameter's old name.
    expect((await asStaff("/v1/accounts?hurt=true")).body).toEqual(failing);
  });

  test("tells when the target of the leading error accepts again", async () => {
    const base = {
      account_id: acme.accountId,
      target_host: "hooks.example.com",
      duration_ms: 1,
      attempts: 1,
    };
    const row = (outcome: string, agoMs: number) => {
      const at = new Date(Date.now() - agoMs);
      const error_code = outcome === "succeeded" ? null : "status_503";
      return { ...base, outcome, error_code, bucket: at, first_at: at, last_at: at };
    };
    const accepted = async () => {
      const [account] = await items("/v1/accounts?failing=true");
      return (account!.leading as Json).accepted_at;
    };
    await insertRow(database.pool, "activity", row("rejected", 600_000));
    expect(await accepted()).toBeNull();
    const good = row("succeeded", 300_000);
    await insertRow(database.pool, "activity", good);
    expect(await accepted()).toBe(good.last_at.toISOString());
    await insertRow(database.pool, "activity", row("rejected", 60_000));
    expect(await accepted()).toBeNull();
    await database.pool.query("delete from sealpost.activity");
  });

  test("has those with most first, and counts no delivery that cannot be replayed", async () => {
    const old = await api.newAccount();
    await layDeliveries(database, old.accountId, { abandoned: 1, failed: 0, succeeded: 0, pending: 0 });
    const more = await api.newAccount();
    await layDeliveries(database, more.accountId, { abandoned: 5, failed: 0, succeeded: 0, pending: 0 });
    const order = [more.accountId, acme.accountId, old.accountId];
    const ids = async (path: string) => (await items(path)).map(({ id }) => id);
    expect(await ids("/v1/accounts?failing=true")).toEqual(order);
    const { next_cursor, total } = (await asStaff("/v1/accounts?failing=true&limit=2")).body;
    expect(total).toBe(3);
    expect(await ids(`/v1/accounts?failing=true&limit=2&cursor=${next_cursor}`)).toEqual(order.slice(2));
    const [day] = new Date(Date.now() - 8 * DAY_MS).toISOString().split("T");
    await makePartitionsFrom(database.pool, day!, 1);
    // Their time is in their ids.
    await database.pool.query(
      `update sealpost.deliveries set id = overlay(id::text placing left(sealpost.uuid_v7_floor(
         now() - interval '8 days')::text, 13) from 1 for 13)::uuid where account_id = any ($1::uuid[])`,
      [[old.accountId, more.accountId]],
    );
    expect(await ids("/v1/accounts?failing=true")).toEqual([acme.accountId]);
  });
});

describe("a search", () => {
  const find = async (q: string) => {
    const { body } = await asStaff(`/v1/search?q=${encodeURIComponent(q)}`);
    return body as Record<"accounts" | "deliveries" | "hosts", Json[]>;
  };
  const theirs = async () => {
    const { rows } = await database.pool.query(
      "select id, analysis_id from sealpost.deliveries where account_id = $1 order by id desc limit 1",
      [globex.accountId],
    );
    return rows[0] as { id: string; analysis_id: string };
  };
  const account = () => ({ id: globex.accountId, name: "Globex" });

  test("finds an account by its name, a part of it, or its id", async () => {
    for (const q of ["Globex", " glob ", globex.accountId, globex.accountId.toUpperCase()])
      expect((await find(q)).accounts).toEqual([account()]);
  });

  test("finds a delivery by its id or the beginning of it, and whose it is", async () => {
    const { id } = await theirs();
    const found = { id, status: "failed", target_host: "hooks.example.com", account: account() };
    for (const q of [id, id.slice(0, 23), id.replaceAll("-", ""), id.toUpperCase()])
      expect((await find(q)).deliveries).toMatchObject([found]);
    expect((await find(id.slice(0, 7))).deliveries).toEqual([]);
    expect((await find(id.slice(0, 8))).deliveries.length).toBeGreaterThan(0);
  });

  test("finds it while all that is left of it are its attempts", async () => {
    const { id } = await theirs();
    await database.pool.query("delete from sealpost.bodies where delivery_id = $1", [id]);
    expect((await find(id)).deliveries).toMatchObject([{ id }]);
  });

  test("finds deliveries by their analysis in every account that has it", async () => {
    const { deliveries } = await find("inv-1");
    const same = deliveries.filter(({ analysis_id }) => analysis_id === "inv-1");
    expect(same.map(({ account }) => account)).toContainEqual(account());
    expect(same.length).toBeGreaterThan(1);
    // Before those that it is the beginning of.
    expect(deliveries.slice(0, same.length)).toEqual(same);
    const begun = (await find("inv-")).deliveries;
    const counts = Map.groupBy(begun, ({ account }) => (account as Json).id).values();
    expect(Math.max(...[...counts].map((some) => some.length)), "of one account").toBe(3);
    expect((await find("nv-1")).deliveries).toEqual([]);
  });

  test("finds who has a host, in a URL too, and how it went there today", async () => {
    const row = { account_id: globex.accountId, target_host: "hooks.example.com", duration_ms: 1 };
    const day = new Date();
    for (const [outcome, error_code, bucket, attempts] of [
      ["succeeded", null, day, 7],
      ["rejected", "status_503", day, 4],
      ["rejected", "status_500", day, 1],
      ["timed_out", "connect_timeout", new Date(day.getTime() - 2 * DAY_MS), 100],
    ]) {
      const counted = { outcome, error_code, bucket, attempts, first_at: bucket, last_at: bucket };
      await insertRow(database.pool, "activity", { ...row, ...counted });
    }
    const found = { target_host: "hooks.example.com", succeeded: 7, failed: 5, account: account() };
    for (const q of ["hooks.example.com", "HOOKS.example.com:8443", "https://hooks.example.com/in?x=1"])
      expect((await find(q)).hosts).toEqual([found]);
    expect((await find("example.com")).hosts).toEqual([]);
  });

  test("that finds nothing says so; one for nothing is refused", async () => {
    expect(await asStaff("/v1/search?q=nobody's")).toMatchObject({
      body: { accounts: [], deliveries: [], hosts: [], left_out: false },
    });
    for (const q of ["", "%20", "%00", "a%07b", "x".repeat(256)])
      expect(await asStaff(`/v1/search?q=${q}`)).toMatchObject({ status: 400 });
  });
});

describe("replays and changes of all accounts", () => {
  test("are listed with whose they are and who made them", async () => {
    const headers = { "x-account-id": acme.accountId };
    const body = { filter: { status: "abandoned" }, note: "INC-42", rate_per_second: 1 };
    const made = await api.ask("POST", "/v1/webhooks/replays", { key: staff, headers, body });
    const account = { id: acme.accountId, name: "Acme, Inc." };
    expect(await items("/v1/accounts/replays")).toMatchObject([
      { id: made.body.id, status: "running", matched: 3, account, created_by: { viewer: null } },
    ]);
    const ended = `insert into sealpost.replays
        (account_id, status, filter, rate_per_second, matched, created_at, paced_at, ended_at, count_at)
      select $1, 'done', '{}', 1, 0, now(), now(), now(), $2 from generate_series(1, 2001)`;
    for (const countAt of [null, new Date()]) await database.pool.query(ended, [globex.accountId, countAt]);
    expect(await items("/v1/accounts/replays"), "behind any number that have ended").toHaveLength(1);
    const [newest] = await items("/v1/accounts/audit");
    expect(newest).toMatchObject({
      operation: "webhooks.replays.create",
      account,
      actor: { kind: "staff_key" },
      details: { note: "INC-42", matched: 3 },
    });
    expect(await items(`/v1/accounts/audit?account_id=${globex.accountId}`)).toEqual([]);
    await insertRow(database.pool, "audit_log", { actor: "command_line", operation_key: "api_keys.create" });
    expect(await items("/v1/accounts/audit?limit=1")).toMatchObject([{ account: null }]);
  });
});
