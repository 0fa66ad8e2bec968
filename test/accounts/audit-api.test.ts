import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SENTENCES } from "../../src/console/change-sentences.ts";
import { html } from "../../src/console/html.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import type { Made } from "../support/area-tests.ts";
import { areaTests } from "../support/areas.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { insertRow, refusingRows, rowOf, rowsOf } from "../support/installation.ts";
import {
  type Asked,
  type Json,
  MAIL,
  startTestApi,
  type TestAccount,
  type TestApi,
} from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

const URL_SET = "https://hooks.example.com/analyses";
const ADDRESS = "walker@example.com";

let database: TestDatabase;
let api: TestApi;
let staff: string;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, MAIL);
  staff = await api.newKey(null);
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const idOf = async (key: string): Promise<string> =>
  (await rowOf(database.pool, "api_keys", { digest: digestSecret(key) })).id;
const rows = (accountId: string) => rowsOf(database.pool, "audit_log", { account_id: accountId });
const setEndpoint = (key: string, more: object = {}) =>
  api.ask("PUT", "/v1/webhooks/endpoint", { key, body: { url: URL_SET }, ...more });

async function list(query = "", key: string | null = null, headers: Record<string, string> = {}) {
  const { status, body } = await api.ask("GET", `/v1/audit${query}`, {
    key: key ?? api.account.ownKey,
    headers,
  });
  return { status, body, items: (body.items ?? []) as Json[] };
}

/** A request of every write that succeeds, in this order: what a later one needs, an earlier one makes. */
const REQUESTS: Readonly<Record<string, (ask: TestApi["ask"], made: Made) => Promise<Asked>>> = {
  "analyses.publish": (ask) =>
    ask("POST", "/v1/analyses", { body: { analysis: { id: "walk", status: "succeeded" } } }),
  "webhooks.events.ack": (ask, { cursor }) =>
    ask("POST", "/v1/webhooks/events/consumers/walk/ack", { body: { cursor } }),
  "webhooks.events.consumers.remove": (ask) => ask("DELETE", "/v1/webhooks/events/consumers/walk"),
  "webhooks.deliveries.replay": (ask, made) =>
    ask("POST", `/v1/webhooks/deliveries/${made["analyses.publish"]}/replay`),
  "webhooks.replays.create": (ask) => ask("POST", "/v1/webhooks/replays", { body: { filter: {} } }),
  "webhooks.replays.cancel": (ask, made) =>
    ask("POST", `/v1/webhooks/replays/${made["webhooks.replays.create"]}/cancel`),
  "analyses.erase": (ask) => ask("DELETE", "/v1/analyses/walk"),
  "webhooks.endpoint.set": (ask) => ask("PUT", "/v1/webhooks/endpoint", { body: { url: URL_SET } }),
  "webhooks.endpoint.test": (ask) => ask("POST", "/v1/webhooks/endpoint/test"),
  "webhooks.endpoint.check": (ask) => ask("POST", "/v1/webhooks/endpoint/check"),
  "webhooks.endpoint.pause": (ask) => ask("POST", "/v1/webhooks/endpoint/pause"),
  "webhooks.endpoint.resume": (ask) => ask("POST", "/v1/webhooks/endpoint/resume"),
  "webhooks.refusals.lift": async (ask) => {
    await database.pool.query(
      `insert into sealpost.refusals (account_id, url) select id, $1 from sealpost.accounts
       on conflict (account_id, url) do update set lifted_at = null`,
      [URL_SET],
    );
    return await ask("POST", "/v1/webhooks/refusals/lift", { body: { url: URL_SET } });
  },
  "webhooks.signing_secret.rotate": (ask) => ask("POST", "/v1/webhooks/signing-secret/rotate"),
  "webhooks.endpoint.remove": (ask) => ask("DELETE", "/v1/webhooks/endpoint"),
  "webhooks.notices.recipients.add": (ask) =>
    ask("POST", "/v1/webhooks/notices/recipients", { body: { address: ADDRESS } }),
  "webhooks.notices.recipients.remove": (ask, made) =>
    ask("DELETE", `/v1/webhooks/notices/recipients/${made["webhooks.notices.recipients.add"]}`),
  "console.links.create": (ask) =>
    ask("POST", "/v1/console/links", { body: { viewer: { id: "walk", label: "Walk" } } }),
  "console.sessions.revoke": (ask) => ask("POST", "/v1/console/sessions/revoke"),
  "api_keys.create": (ask) =>
    ask("POST", "/v1/api-keys", { body: { name: "walk", scopes: ["webhooks:read"] } }),
  "api_keys.revoke": (ask, made) => ask("DELETE", `/v1/api-keys/${made["api_keys.create"]}`),
  "users.create": (ask) =>
    ask("POST", "/v1/users", { body: { idp_user_id: "walk", email: "walk@example.com", name: "Walk" } }),
  "users.disable": (ask, made) => ask("DELETE", `/v1/users/${made["users.create"]}`),
  ...Object.assign({}, ...areaTests.map((area) => area.writes)),
};

const writes = declaredOperations().filter(
  ({ effect, work }) => effect === "write" && work.kind !== "retired",
);
const usersOnly: readonly string[] = writes.filter(({ needsUser }) => needsUser).map(({ key }) => key);
const PUBLISH = "analyses.publish";
const ROWLESS: readonly string[] = [PUBLISH, "webhooks.events.ack"];

describe("every write through the API", () => {
  test("has a request here, and its row comes from what it declares, but for three", () => {
    expect(writes.map(({ key }) => key).sort()).toEqual(Object.keys(REQUESTS).sort());
    const elsewhere = writes.filter(({ audit }) => typeof audit !== "function").map(({ key }) => key);
    expect(elsewhere).toEqual([...ROWLESS, "webhooks.endpoint.check"]);
  });

  test.each(["key", "staff_key"])(
    "leaves one row that names who did it (%s), and no secret",
    async (kind) => {
      const account = await api.newAccount();
      const keyFor = (operation: string) =>
        kind === "staff_key" ? staff : usersOnly.includes(operation) ? account.key : account.ownKey;
      const headers = kind === "key" ? {} : { "x-account-id": account.accountId };
      const secrets = [account.secret, account.key, account.ownKey, staff];
      const made: Made = { user: (await api.newUser(account.accountId)).userId };
      const { body: page } = await api.ask("GET", "/v1/webhooks/events", { key: account.ownKey });
      made.cursor = String(page.next_cursor);
      // Staff are users of no account.
      const requests = Object.entries(REQUESTS).filter(
        ([operation]) => kind === "key" || !usersOnly.includes(operation),
      );
      for (const [operation, request] of requests) {
        const before = (await rows(account.accountId)).length;
        const requestId = `${operation} by ${kind}`;
        const again: Parameters<TestApi["ask"]>[] = [];
        const ask: TestApi["ask"] = (method, path, options) => {
          const all = { ...options, key: keyFor(operation), idempotencyKey: requestId };
          again.push([method, path, { ...all, headers: { ...headers, "x-request-id": requestId } }]);
          return api.ask(...again.at(-1)!);
        };
        const { status, body } = await request(ask, made);
        expect(status, operation).toBeLessThan(300);
        made[operation] = String(operation === PUBLISH ? body.delivery_id : body?.id);
        for (const member of ["api_key", "signing_secret"])
          if (body?.[member]) secrets.push(String(body[member]));
        // The same again writes none again.
        expect((await api.ask(...again.at(-1)!)).status, operation).toBe(status);
        const found = (await rows(account.accountId)).slice(before);
        const key_id = await idOf(keyFor(operation));
        const row = { operation_key: operation, actor: kind, key_id, request_id: requestId };
        expect(found, operation).toMatchObject(ROWLESS.includes(operation) ? [] : [row]);
      }
      expect(secrets).toHaveLength(kind === "key" ? 7 : 6);
      const listed = await list("?limit=100", account.ownKey);
      expect(listed.items).toHaveLength(requests.length - ROWLESS.length);
      for (const { operation, details } of listed.items as { operation: string; details: Json }[]) {
        const told = { details, base: "/", may: () => true, timeZone: null };
        const text = html`${SENTENCES[operation]!(told)}`.text.replaceAll(/<[^>]*>/g, "");
        expect([operation, text]).not.toEqual([
          operation,
          expect.stringMatching(/undefined|null|NaN|\[object|\?/),
        ]);
      }
      const everything = JSON.stringify([await rows(account.accountId), listed.body]);
      for (const secret of secrets) {
        expect(everything).not.toContain(secret);
        expect(everything).not.toContain(digestSecret(secret).toString("hex"));
      }
    },
  );

  test("of a recipient names it by its id, and shows its address only to who knows it", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    const ask: TestApi["ask"] = (method, path, options) => api.ask(method, path, { ...options, key });
    const { body } = await REQUESTS["webhooks.notices.recipients.add"]!(ask, {});
    const recipient_id = String(body.id);
    await REQUESTS["webhooks.notices.recipients.remove"]!(ask, {
      "webhooks.notices.recipients.add": recipient_id,
    });
    const details = (await rows(accountId)).map((row) => row.details);
    expect(details).toEqual([{ recipient_id, address: "w***@example.com" }, { recipient_id }]);
  });

  test("that is publishing names key, account and request in its log line", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    const headers = { "x-request-id": "publish 1" };
    await REQUESTS[PUBLISH]!(
      (method, path, options) => api.ask(method, path, { ...options, key, headers }),
      {},
    );
    const who = { key_id: await idOf(key), account_id: accountId };
    const line = { operation: PUBLISH, request_id: "publish 1", ...who };
    await expect.poll(() => api.log.find(({ request_id }) => request_id === "publish 1")).toMatchObject(line);
  });

  test("that is refused, or undone with its row, leaves none", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    expect((await setEndpoint(key, { body: { url: "http://x" } })).status).toBe(422);
    expect((await setEndpoint(await api.newKey(accountId, ["webhooks:read"]))).status).toBe(403);
    expect((await api.ask("DELETE", "/v1/webhooks/endpoint", { key })).status).toBe(404);
    // Its answer cannot be stored, which is the last thing that happens.
    await refusingRows(database.pool, "idempotency_keys", () =>
      expect(setEndpoint(key)).rejects.toThrow("met a fault"),
    );
    expect(await rows(accountId)).toEqual([]);
    expect((await api.ask("GET", "/v1/webhooks/endpoint", { key })).status).toBe(404);
  });
});

describe("the list", () => {
  test("shows who changed what, the newest first", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    await setEndpoint(key, { headers: { "x-request-id": "r 1" } });
    await api.ask("DELETE", "/v1/webhooks/endpoint", { key });
    const { body, items } = await list("", key);
    expect(body).toMatchObject({ next_cursor: null, total: 2 });
    expect(items.map(({ operation }) => operation)).toEqual([
      "webhooks.endpoint.remove",
      "webhooks.endpoint.set",
    ]);
    const [{ id, at }] = (
      await database.pool.query(
        "select id, sealpost.uuid_v7_time(id) as at from sealpost.audit_log where account_id = $1 order by id",
        [accountId],
      )
    ).rows;
    expect(items[1]).toEqual({
      id,
      at: at.toISOString(),
      operation: "webhooks.endpoint.set",
      actor: { kind: "key", key_id: await idOf(key), name: null, user: null, viewer: null },
      request_id: "r 1",
      details: { url: URL_SET },
    });
  });

  test("names the user that a key acts for, in a session of the console, too", async () => {
    const account = await api.newAccount();
    const name = (await rowOf(database.pool, "users", { id: account.userId })).name;
    await api.ask("POST", "/v1/api-keys", {
      key: account.key,
      body: { name: "CI", scopes: ["webhooks:read"] },
    });
    await api.ask("POST", "/v1/console/links", {
      key: account.key,
      body: { viewer: { id: "1", label: "Sam" } },
    });
    await setEndpoint(account.ownKey);
    const { items } = await list("", account.ownKey);
    const user = { id: account.userId, name };
    expect(items.map(({ actor }) => (actor as Json).user)).toEqual([null, user, user]);
  });

  test("shows staff by name to staff only", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    const headers = { "x-account-id": accountId };
    const named = await api.newKey(null);
    await database.pool.query("update sealpost.api_keys set name = 'Ada' where id = $1", [await idOf(named)]);
    await setEndpoint(named, { headers });
    const actor = { kind: "staff_key", key_id: await idOf(named) };
    expect((await list("", key)).items).toMatchObject([{ actor: { ...actor, name: null } }]);
    expect((await list("", staff, headers)).items).toMatchObject([{ actor: { ...actor, name: "Ada" } }]);
  });

  test("is of one account, and needs its scope", async () => {
    const [one, other] = [await api.newAccount(), await api.newAccount()];
    await setEndpoint(one.ownKey);
    expect((await list("", other.ownKey)).body).toEqual({ items: [], next_cursor: null, total: 0 });
    expect((await list("", other.ownKey, { "x-account-id": one.accountId })).status).toBe(403);
    expect((await list("", await api.newKey(one.accountId, ["webhooks:read"]))).status).toBe(403);
    expect((await list("", staff)).status).toBe(400);
  });

  test("has the filters that it says, which work together", async () => {
    const account = await api.newAccount();
    const other = await api.newKey(account.accountId);
    const headers = { "x-account-id": account.accountId };
    await setEndpoint(account.ownKey);
    await api.ask("DELETE", "/v1/webhooks/endpoint", { key: other });
    await setEndpoint(staff, { headers });
    const [last, middle, first] = (await list("", account.ownKey)).items as { id: string; at: string }[];
    const found = async (query: string) => (await list(query, account.ownKey)).items.map(({ id }) => id);
    expect(await found("?operation=webhooks.endpoint.set")).toEqual([last?.id, first?.id]);
    expect(await found("?actor=key")).toEqual([middle?.id, first?.id]);
    expect(await found("?actor=staff_key&operation=webhooks.endpoint.set")).toEqual([last?.id]);
    expect(await found("?actor=command_line")).toEqual([]);
    expect(await found(`?actor=${await idOf(other)}`)).toEqual([middle?.id]);
    expect(await found(`?actor=${await idOf(api.account.ownKey)}`)).toEqual([]);
    expect(await found(`?created_before=${first?.at}`)).toEqual([]);
    expect(await found(`?created_after=${first?.at}`)).toEqual([last?.id, middle?.id, first?.id]);
    expect(await found("?created_after=2100-01-01T00:00:00Z")).toEqual([]);
    for (const wrong of [
      "operation=webhooks.endpoint.sets",
      "operation=analyses.get",
      "actor=session",
      "actor=",
    ]) {
      expect((await list(`?${wrong}`, account.ownKey)).status, wrong).toBe(400);
    }
  });

  test("leaves out who opened the console or was made to leave, where that is asked", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    const openConsole = () =>
      REQUESTS["console.links.create"]!((...asked) => api.ask(asked[0], asked[1], { ...asked[2], key }), {});
    for (let n = 0; n < 3; n++) {
      await openConsole();
      await setEndpoint(key);
    }
    await api.ask("POST", "/v1/console/sessions/revoke", { key });
    const without = await list("?without_openings=true&limit=2", key);
    expect(without.body.total).toBe(3);
    expect(without.items.map(({ operation }) => operation)).toEqual(Array(2).fill("webhooks.endpoint.set"));
    const cursor = without.body.next_cursor;
    expect((await list(`?without_openings=true&limit=2&cursor=${cursor}`, key)).items).toHaveLength(1);
    expect((await list(`?limit=2&cursor=${cursor}`, key)).status).toBe(400);
    for (const all of ["", "?without_openings=false"]) expect((await list(all, key)).items).toHaveLength(7);
    expect((await list("?without_openings=1", key)).status).toBe(400);
    const { body } = await api.ask(
      "GET",
      `/v1/accounts/audit?account_id=${accountId}&without_openings=true`,
      { key: staff },
    );
    expect(body.total).toBe(3);
  });

  test("tells where the endpoint was before, if it was anywhere, by whatever key", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    const other = "https://other.example.com/in";
    await setEndpoint(key);
    await setEndpoint(key, { body: { url: other } });
    await setEndpoint(staff, {
      body: { url: other, payload: "reference" },
      headers: { "x-account-id": accountId },
    });
    await api.ask("DELETE", "/v1/webhooks/endpoint", { key });
    await setEndpoint(key);
    const answer = await setEndpoint(key, { body: { url: other } });
    expect(answer.body).not.toHaveProperty("previous_url");
    expect((await rows(accountId)).map(({ details }) => details)).toEqual([
      { url: URL_SET },
      { url: other, previous_url: URL_SET },
      { url: other, previous_url: other, payload: "reference" },
      {},
      { url: URL_SET },
      { url: other, previous_url: URL_SET },
    ]);
  });

  test("tells of each of several at once what it replaced", async () => {
    const { ownKey: key, accountId } = await api.newAccount();
    await setEndpoint(key);
    const urls = Array.from({ length: 8 }, (_, n) => `https://h${n}.example.com/`);
    await Promise.all(urls.map((url) => setEndpoint(key, { body: { url } })));
    const told = (await rows(accountId)).map(({ details }) => details as { previous_url?: string });
    const replaced = told.flatMap(({ previous_url }) => previous_url ?? []);
    const last = (await api.ask("GET", "/v1/webhooks/endpoint", { key })).body.url;
    expect([...replaced, last].sort()).toEqual([URL_SET, ...urls].sort());
  });

  test("is paged, and a cursor is good for its own filter and account", async () => {
    const account = await api.newAccount();
    for (let n = 0; n < 5; n++) await setEndpoint(account.ownKey);
    const seen: unknown[] = [];
    let cursor = "";
    do {
      const { body, items } = await list(`?limit=2${cursor}`, account.ownKey);
      expect(body.total).toBe(5);
      seen.push(...items.map(({ id }) => id));
      cursor = body.next_cursor === null ? "" : `&cursor=${body.next_cursor}`;
      if (cursor === "") break;
      expect((await list(`?limit=2&actor=key${cursor}`, account.ownKey)).status).toBe(400);
      expect((await list(`?limit=2${cursor}`)).status).toBe(400);
    } while (seen.length < 10);
    const all = (await rows(account.accountId)).map(({ id }) => id).reverse();
    expect(seen).toEqual(all);
  });

  test("shows what version 1.0 wrote, which named no actor", async () => {
    const account: TestAccount = await api.newAccount();
    const old = { account_id: account.accountId, operation_key: "webhooks.endpoint.check", details: {} };
    await insertRow(database.pool, "audit_log", { ...old, key_id: await idOf(account.ownKey) });
    await insertRow(database.pool, "audit_log", { ...old, key_id: await idOf(staff), details: null });
    const kinds = async (query: string) =>
      (await list(query, account.ownKey)).items.map(({ actor, details }) => [(actor as Json).kind, details]);
    expect(await kinds("")).toEqual([
      ["staff_key", {}],
      ["key", {}],
    ]);
    expect(await kinds("?actor=staff_key")).toEqual([["staff_key", {}]]);
  });

  test("looks at 10,000 rows for a rare match, says so, and goes on", async () => {
    const account = await api.newAccount();
    await setEndpoint(account.ownKey);
    await database.pool.query(
      `insert into sealpost.audit_log (account_id, actor, operation_key, details)
       select $1, 'command_line', 'webhooks.endpoint.remove', '{}' from generate_series(1, 10001)`,
      [account.accountId],
    );
    const asked = await api.ask("GET", "/v1/audit?actor=key", { key: account.ownKey });
    expect(asked.headers.get("total-capped")).toBe("true");
    expect(asked.body).toMatchObject({ items: [], total: 0, next_cursor: expect.any(String) });
    const next = await list(`?actor=key&cursor=${asked.body.next_cursor}`, account.ownKey);
    expect(next.body).toMatchObject({ items: [{ operation: "webhooks.endpoint.set" }], next_cursor: null });
    const everything = await api.ask("GET", "/v1/audit?limit=1", { key: account.ownKey });
    expect([everything.body.total, everything.headers.get("total-capped")]).toEqual([10_000, "true"]);
  });
});
