import { randomUUID } from "node:crypto";
import { fc } from "@fast-check/vitest";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { API_LIMITS } from "../../src/app/api-server.ts";
import { DAY_MS } from "../../src/base/model/time.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { refuseUrl } from "../../src/delivery/receivers-sql.ts";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import type { OpenApiDocument } from "../support/api-answer-check.ts";
import { countOf, fuzzApi, type KnownValues } from "../support/api-fuzz.ts";
import { areaTests } from "../support/areas.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { createTestKey, createTestUser, deleteRows, insertRow } from "../support/installation.ts";
import { MAIL, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { patience } from "../support/time-limits.ts";

const RUNS = inject("fuzzRuns");
const SEED = 20260301;
/** Of each operation's requests so many succeed, and as many are refused. */
const OF_EACH_MIN = RUNS / 15;
/** As most people's: fast-check's own nearly always have a character that mail relays take for a command. */
const plainAddress = fc
  .tuple(fc.stringMatching(/^[a-z0-9]{1,20}$/), fc.domain())
  .map((parts) => parts.join("@"));

let database: TestDatabase;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  // With all limits raised, that of checking receivers included.
  api = await startTestApi(
    database,
    { CONSOLE_ANCESTORS: "https://app.example.com", ...MAIL },
    {
      limits: {
        replays: { ...API_LIMITS.replays, runningMax: 10_000 },
        checks: { name: "check", requestsMax: 1_000_000, windowSeconds: 60 },
      },
    },
  );
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

/** Things that exist, so that requests made from the document alone find some. */
async function knownValues(): Promise<Readonly<Record<string, KnownValues>>> {
  const { pool } = database;
  const { accountId } = api.account;
  const names = Array.from({ length: RUNS }, (_, n) => `f-${n}`);
  const erasable = names.map((name) => `erased-${name}`);
  await publishAt(pool, accountId, new Date(), erasable);
  // For want of a target they are abandoned at once, and can be replayed.
  const deliveries = await publishAt(pool, accountId, new Date(), names);
  const replays: string[] = [];
  for (let n = 0; n < 30; n++) {
    const body = { filter: { analysis_id: `f-${n}` } };
    replays.push((await api.ask("POST", "/v1/webhooks/replays", { body })).body.id as string);
  }
  // Otherwise the feed is empty, and its readers wait: for nothing, and for as long as they say.
  await sequenceEvents(pool, randomUUID(), 1_000);
  const later = String((await api.ask("GET", "/v1/webhooks/events?limit=100")).body.next_cursor);
  const setSome = async () => {
    await setEndpoint(pool, accountId, "https://hooks.example.com/");
  };
  const REFUSING = "https://refusing.example.com/";
  const refuse = async () => {
    await pool.query("delete from sealpost.refusals where account_id = $1", [accountId]);
    await refuseUrl(pool, accountId, REFUSING);
  };
  const recipients = Array.from({ length: 5 }, (_, n) => ({
    id: randomUUID(),
    address: `known${n}@example.com`,
  }));
  const forgetRecipients = async () => {
    await deleteRows(pool, "notice_recipients");
    await deleteRows(pool, "notice_mails");
  };
  const setRecipients = async () => {
    await forgetRecipients();
    for (const one of recipients)
      await insertRow(pool, "notice_recipients", { ...one, account_id: accountId });
  };
  const staff = await api.newKey(null);
  const keys = await Promise.all(
    Array.from({ length: 5 }, async () => (await createTestKey(pool, accountId)).keyId),
  );
  const { id: someUser } = await createTestUser(pool, accountId);
  const forgetKeys = async () => {
    await pool.query("delete from sealpost.api_keys where account_id = $1 and name is not null", [accountId]);
  };
  // Of all moments hardly one is of the last days.
  const lately = fc
    .integer({ min: 0, max: 10 * DAY_MS })
    .map((agoMs) => new Date(Date.now() - agoMs).toISOString());
  const delivery = { delivery_id: fc.constantFrom(...deliveries) };
  const replay = { replay_id: fc.constantFrom(...replays) };
  const urls = fc.oneof(
    fc.domain().map((host) => `https://${host}/hook`),
    fc.webUrl({ withQueryParameters: true, withFragments: true }),
    fc.string(),
  );
  const analyses = fc.record(
    {
      id: fc.stringMatching(/^[A-Za-z0-9._:-]{1,200}$/),
      status: fc.constantFrom("succeeded", "failed"),
      more: fc.jsonValue(),
    },
    { requiredKeys: ["id", "status"] },
  );
  const known: Record<string, KnownValues> = {
    "analyses.erase": { params: { analysis_id: fc.constantFrom(...erasable) } },
    "analyses.get": { params: { analysis_id: fc.constantFrom(...names) } },
    "analyses.publish": {
      body: fc.record({ analysis: analyses, webhook_url: fc.option(urls) }, { requiredKeys: ["analysis"] }),
    },
    "webhooks.events.list": {
      query: { cursor: fc.constantFrom(later, "newest"), wait: fc.constantFrom(0, 0, 0, 1) },
    },
    "webhooks.events.ack": {
      params: { name: fc.constantFrom("one", "other", "no name!") },
      body: fc.record({ cursor: fc.oneof(fc.constant(later), fc.string()) }),
    },
    "webhooks.events.consumers.remove": {
      before: async () => {
        await api.ask("POST", "/v1/webhooks/events/consumers/one/ack", { body: { cursor: later } });
      },
      params: { name: fc.constantFrom("one", "unknown", "no name!") },
    },
    "webhooks.endpoint.get": { before: setSome },
    "webhooks.endpoint.set": { body: fc.record({ url: urls }) },
    "webhooks.endpoint.remove": { before: setSome },
    "webhooks.endpoint.test": { before: setSome },
    "webhooks.endpoint.check": { before: setSome },
    "webhooks.endpoint.pause": { before: setSome },
    "webhooks.endpoint.resume": { before: setSome },
    "webhooks.refusals.lift": {
      before: refuse,
      body: fc.record({ url: fc.oneof(fc.constant(REFUSING), urls) }),
    },
    "webhooks.deliveries.get": { params: delivery },
    "webhooks.deliveries.body": { params: delivery },
    "webhooks.deliveries.replay": { params: delivery },
    "webhooks.activity": {
      query: { from: lately, to: fc.constant(new Date(Date.now() + DAY_MS).toISOString()) },
    },
    "webhooks.replays.get": { params: replay },
    "webhooks.replays.cancel": { params: replay },
    "webhooks.notices.recipients.add": {
      before: forgetRecipients,
      body: fc.record({ address: fc.oneof(plainAddress, fc.emailAddress(), fc.string()) }),
    },
    "webhooks.notices.recipients.remove": {
      before: setRecipients,
      params: { recipient_id: fc.constantFrom(...recipients.map(({ id }) => id)) },
    },
    "console.links.create": {
      body: fc.record(
        {
          viewer: fc.record({ id: fc.string({ minLength: 1 }), label: fc.string({ minLength: 1 }) }),
          session_seconds: fc.integer({ min: 0, max: 100_000 }),
          time_zone: fc.constantFrom("Europe/Berlin", "UTC", "Mars/Phobos"),
          embed_origin: fc.constantFrom("https://app.example.com"),
        },
        { requiredKeys: ["viewer"] },
      ),
    },
    // An account has a bounded number of them.
    "api_keys.create": { before: forgetKeys },
    "api_keys.revoke": { params: { key_id: fc.constantFrom(...keys) } },
    "users.create": { body: fc.record({ idp_user_id: fc.uuid(), email: plainAddress, name: fc.string() }) },
    "users.disable": { params: { user_id: fc.constant(someUser) } },
    ...Object.assign({}, ...(await Promise.all(areaTests.map((area) => area.knownValues(api))))),
  };
  const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
  return Object.fromEntries(
    declaredOperations().map(({ key, isAcrossAccounts, needsUser }): [string, KnownValues] => {
      const other = isAcrossAccounts ? { headers: bearer(staff) } : {};
      const ofUser = needsUser ? { headers: bearer(api.account.key) } : {};
      return [key, { ...known[key], ...other, ...ofUser }];
    }),
  );
}

test(`no request made from the document gets a 5xx, or an answer that is not in it: ${RUNS} each, seed ${SEED}`, {
  timeout: patience(300_000),
}, async () => {
  const report = await fuzzApi({
    document: (await api.ask("GET", "/v1/openapi.json")).body as unknown as OpenApiDocument,
    baseUrl: `${api.url}/v1`,
    headers: { authorization: `Bearer ${api.account.ownKey}` },
    runsPerOperation: RUNS,
    seed: SEED,
    known: await knownValues(),
  });
  expect(api.log.filter(({ level }) => Number(level) >= 50)).toEqual([]);
  expect(report.size).toBe(declaredOperations().length);
  const isFew = (key: string) => [200, 400].some((from) => countOf(report, key, from) < OF_EACH_MIN);
  expect([...report].filter(([key]) => isFew(key))).toEqual([]);
});
