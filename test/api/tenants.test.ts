import { fc } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import type { Operation } from "../../src/http/operation.ts";
import { areaTests } from "../support/areas.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestKey } from "../support/installation.ts";
import { type Asked, MAIL, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

/** Fewer in the fast tier. */
const PROBES = inject("suite").mode === "test" ? 10 : 100;

let database: TestDatabase;
let api: TestApi;
/** Whose things they are, and who asks for them. */
let owner: TestAccount;
let stranger: TestAccount;
let keys: { otherClass: string; otherBrand: string; noScope: string; unknown: string; revoked: string };
let things: Record<"analysis_id" | "delivery_id" | "replay_id" | "recipient_id" | "key_id" | "name", string> &
  Record<string, string>;
let before: string;

beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, MAIL);
  owner = api.account;
  stranger = await api.newAccount();
  keys = {
    otherClass: await api.newKey(owner.accountId, undefined, {
      ENVIRONMENT: "production",
      SECRETS_KEY: Buffer.alloc(32).toString("base64"),
    }),
    otherBrand: await api.newKey(owner.accountId, undefined, { API_KEY_BRAND: "acme" }),
    noScope: await api.newKey(owner.accountId, []),
    unknown: `svc_test_${"A".repeat(43)}`,
    revoked: await api.newKey(owner.accountId),
  };
  await database.pool.query(
    `update sealpost.api_keys set revoked_at = now() where id = (select max(id::text)::uuid from sealpost.api_keys)`,
  );
  const body = { analysis: { id: "theirs", status: "succeeded" } };
  const published = await api.ask("POST", "/v1/analyses", { body });
  // A second one, so that a page of one has a cursor.
  await api.ask("POST", "/v1/analyses", { body: { analysis: { id: "theirs too", status: "succeeded" } } });
  await api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: "https://hooks.example.com/" } });
  const replay = await api.ask("POST", "/v1/webhooks/replays", { body: { filter: {} } });
  const recipient = await api.ask("POST", "/v1/webhooks/notices/recipients", {
    body: { address: "theirs@example.com" },
  });
  const { next_cursor: cursor } = (await api.ask("GET", "/v1/webhooks/events", { key: owner.ownKey })).body;
  const acknowledged = await api.ask("POST", "/v1/webhooks/events/consumers/theirs/ack", {
    key: owner.ownKey,
    body: { cursor },
  });
  expect(acknowledged.status).toBe(204);
  things = {
    analysis_id: "theirs",
    name: "theirs",
    delivery_id: String(published.body.delivery_id),
    replay_id: String(replay.body.id),
    recipient_id: String(recipient.body.id),
    key_id: (await createTestKey(database.pool, owner.accountId)).keyId,
  };
  for (const area of areaTests) Object.assign(things, await area.makeThings(api, owner));
  before = await everythingOfTheOwner();
});
afterAll(async () => {
  expect(await everythingOfTheOwner()).toBe(before);
  await api.close();
  await database.drop();
});

async function everythingOfTheOwner(): Promise<string> {
  const tables =
    "analyses bodies deliveries open_deliveries attempts endpoints signing_secrets replays".split(" ");
  tables.push("notice_recipients", "notice_mails", "feed_consumers");
  const ofAreas = areaTests.flatMap((area) => area.tables);
  const texts = [...tables.map((table) => `sealpost.${table}`), ...ofAreas].map((table) =>
    database.pool.query(`select t::text from ${table} as t where account_id = $1 order by t::text`, [
      owner.accountId,
    ]),
  );
  return JSON.stringify((await Promise.all(texts)).map(({ rows }) => rows));
}

/** The whole answer, without what names the request and its time. */
function told({ status, headers, bytes }: Asked): unknown {
  const kept = [...headers].filter(([name]) => !["x-request-id", "date", "ratelimit", "etag"].includes(name));
  return {
    status,
    headers: kept,
    text: bytes.toString().replaceAll(/"request_id":"[^"]*"/g, '"request_id":"…"'),
  };
}

const bodies: Readonly<Record<string, unknown>> = {
  "analyses.publish": { analysis: { id: "theirs", status: "failed" } },
  "webhooks.endpoint.set": { url: "https://stranger.example.com/" },
  "webhooks.replays.create": { filter: {} },
  "webhooks.notices.recipients.add": { address: "stranger@example.com" },
  "api_keys.create": { name: "stranger's", scopes: ["analyses:read"] },
  "users.create": { idp_user_id: "stranger", email: "stranger@example.com", name: "Stranger" },
  ...Object.assign({}, ...areaTests.map((area) => area.bodies)),
};

function addressOf(operation: Operation, ids: Readonly<Record<string, string>>): string {
  return operation.path.replace(/\{(\w+)\}/g, (_, name) => ids[name] ?? "");
}

/** One that may ask for it at all. */
function keyFor({ isOfAccount }: Operation, { key, ownKey }: TestAccount): string {
  return isOfAccount ? ownKey : key;
}

function send(operation: Operation, ids: Readonly<Record<string, string>>, key: string, headers = {}) {
  const isFile = operation.body?.kind === "stream";
  const sent = isFile ? { content: Buffer.from("stranger's") } : { body: bodies[operation.key] };
  return api.ask(operation.method, addressOf(operation, ids), { key, headers, ...sent });
}

/** Ids that nobody has, different every time. */
function unknownIds(n: number): Record<string, string> {
  const [one = "", other = ""] = fc.sample(fc.uuid({ version: 7 }), { numRuns: 2, seed: n });
  const ids = Object.fromEntries(Object.keys(things).map((name) => [name, other]));
  return { ...ids, analysis_id: `none-${n}`, name: `none-${n}`, delivery_id: one };
}

const operations = declaredOperations();
/** A consumer's name is whatever its reader calls itself. */
const NAMES = ["webhooks.events.ack"];
const withIds = operations.filter(({ key, path }) => path.includes("{") && !NAMES.includes(key));

test("there are operations of both kinds to probe", () => {
  expect(operations.length).toBeGreaterThanOrEqual(15);
  expect(withIds.length).toBeGreaterThanOrEqual(5);
});

describe("another account's id answers exactly as one that does not exist", () => {
  test.each(withIds)("$key", async (operation) => {
    const theirs = told(await send(operation, things, keyFor(operation, stranger)));
    expect(theirs).toMatchObject({ status: 404 });
    for (let n = 0; n < PROBES; n++) {
      const probe = n % 2 === 0 ? unknownIds(n) : things;
      expect(told(await send(operation, probe, keyFor(operation, stranger)))).toEqual(theirs);
    }
  });
});

describe("another account's id or cursor within a request answers exactly as one that does not exist", () => {
  const list = "/v1/webhooks/deliveries";
  const find = (analysisId: string) =>
    api.ask("GET", `${list}?analysis_id=${analysisId}`, { key: stranger.key });
  const count = (analysis_id: string) =>
    api.ask("POST", "/v1/webhooks/replays", {
      key: stranger.key,
      body: { filter: { analysis_id }, dry_run: true },
    });
  test.each([
    ["to list", find],
    ["to replay", count],
  ])("an analysis's, %s", async (_, ask) => {
    const theirs = told(await ask(things.analysis_id));
    expect(theirs).toMatchObject({ status: 200 });
    for (let n = 0; n < PROBES; n++) {
      expect(told(await ask(n % 2 === 0 ? `none-${n}` : things.analysis_id))).toEqual(theirs);
    }
  });

  test("a cursor", async () => {
    const { next_cursor } = (await api.ask("GET", `${list}?limit=1`)).body;
    const ask = (cursor: string) => api.ask("GET", `${list}?limit=1&cursor=${cursor}`, { key: stranger.key });
    const theirs = told(await ask(String(next_cursor)));
    expect(theirs).toMatchObject({ status: 400 });
    for (let n = 0; n < PROBES; n++) {
      expect(told(await ask(n % 2 === 0 ? `none-${n}` : String(next_cursor)))).toEqual(theirs);
    }
  });
});

describe("a key that is not valid here answers exactly as none, whatever it asks for", () => {
  test.each(operations)("$key", async (operation) => {
    const invalid = [keys.otherClass, keys.otherBrand, keys.unknown, keys.revoked, "", "x", `${owner.key}x`];
    const expected = told(await send(operation, unknownIds(0), keys.unknown));
    expect(expected).toMatchObject({ status: 401 });
    for (let n = 0; n < PROBES; n++) {
      const ids = n % 3 === 0 ? unknownIds(n) : things;
      expect(told(await send(operation, ids, invalid[n % invalid.length] ?? ""))).toEqual(expected);
    }
  });
});

describe("a key without the scope is denied before anything is looked up", () => {
  test.each(operations)("$key", async (operation) => {
    const others = (await api.newKey(owner.accountId, scopesBut(operation.scope))) as string;
    const expected = told(await send(operation, unknownIds(0), keys.noScope));
    expect(expected).toMatchObject({ status: 403 });
    for (let n = 0; n < PROBES; n++) {
      const key = n % 2 === 0 ? keys.noScope : others;
      expect(told(await send(operation, n % 3 === 0 ? unknownIds(n) : things, key))).toEqual(expected);
    }
  });
});

describe("naming another account", () => {
  test.each(operations)("is denied to a tenant: $key", async (operation) => {
    const header = (accountId: string) => ({ "x-account-id": accountId });
    const existing = await send(operation, things, keyFor(operation, stranger), header(owner.accountId));
    const missing = await send(
      operation,
      things,
      keyFor(operation, stranger),
      header(unknownIds(1).delivery_id ?? ""),
    );
    expect(existing.status).toBe(403);
    expect(told(existing)).toEqual(told(missing));
  });
});

function scopesBut(scope: string): readonly string[] {
  return [...new Set(operations.map((operation) => operation.scope))].filter((one) => one !== scope);
}
