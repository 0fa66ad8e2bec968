// A neighbour in the database who may create things in `public` must not get anything of ours to call them.
import { randomBytes, randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from "vitest";
import { keepHouse } from "../../../src/app/housekeeping.ts";
import { createGeneralPool } from "../../../src/base/database/pools.ts";
import { DAY_MS } from "../../../src/base/model/time.ts";
import { noteCertificates, noteEndpointNews } from "../../../src/delivery/endpoint-health-sql.ts";
import { setEndpoint } from "../../../src/delivery/endpoint-sql.ts";
import { endSequencingLease, readFeedLag, sequenceEvents } from "../../../src/feed/feed-sql.ts";
import { countActivity, foldActivity } from "../../../src/log/activity-sql.ts";
import { confirmationsOf, sendNextMail } from "../../../src/notices/mail-sending.ts";
import { lookForNews } from "../../../src/notices/news.ts";
import { collectMails, giveUpCutMails, takeNoticeTurn } from "../../../src/notices/notice-mails-sql.ts";
import type { Made } from "../../support/area-tests.ts";
import { areaTests } from "../../support/areas.ts";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { startTestDispatcher, unsafeAllowed } from "../../support/dispatching.ts";
import { findCalled, plantHostileNames } from "../../support/hostile-names.ts";
import { countRows, insertRow, publish, publishMany, SECRETS_KEY } from "../../support/installation.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";
import { MAIL, startTestApi, type TestApi } from "../../support/sealpost-api.ts";
import { declaredOperations } from "../../support/sealpost-operations.ts";
import { patience } from "../../support/time-limits.ts";

const PLANTED_MIN = 15_000;

let watcher: pg.Client;
let admin: pg.Client;
let database: TestDatabase;
let receiver: Receiver;
let env: Record<string, string>;
let api: TestApi;

beforeAll(async () => {
  const { adminUrl, templateName } = inject("testDatabases");
  admin = new pg.Client(adminUrl);
  await admin.connect();
  const name = `${templateName}_hostile_${randomBytes(4).toString("hex")}`;
  await admin.query(`create database ${name}`);
  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  watcher = new pg.Client({ connectionString: url.href, options: "-c search_path=pg_catalog,pg_temp" });
  await watcher.connect();
  // Before there is anything of ours: the first migration works among them, too.
  expect(await plantHostileNames(watcher)).toBeGreaterThan(PLANTED_MIN);
  // The worst that an administrator can have set for everybody: not even PostgreSQL's own names come first.
  await watcher.query(`alter database ${name} set search_path = public, pg_catalog`);

  let isFlakyKnown = false;
  receiver = await startReceiver({
    handler: ({ body }) => {
      if (isFlakyKnown || !body.includes('"flaky"')) return {};
      isFlakyKnown = true;
      return { status: 503 };
    },
  });
  env = {
    DATABASE_URL: url.href,
    SECRETS_KEY: SECRETS_KEY.toString("base64"),
    UNSAFE_ALLOWED_TARGETS: unsafeAllowed([receiver]).join(","),
  };
  await command("migrate");
  // What the tests themselves ask must not be what they look for.
  const pool = createGeneralPool({
    databaseUrl: url.href,
    connectionsMax: 10,
    applicationName: "test search path",
    onError: () => undefined,
  });
  database = {
    url: url.href,
    pool,
    drop: async () => {
      await pool.end();
      await admin.query(`drop database if exists ${name} with (force)`);
      await admin.end();
    },
  };
  api = await startTestApi(database, { ...MAIL, UNSAFE_ALLOWED_TARGETS: env.UNSAFE_ALLOWED_TARGETS! });
}, patience(120_000));

afterEach(async () => {
  expect(await findCalled(watcher), "what was planted in public and called").toBeNull();
});
afterAll(async () => {
  await api?.close();
  await receiver?.close();
  await watcher?.end();
  await database?.drop();
});

async function command(...args: string[]) {
  const { code, stdout, stderr } = await runSealpost(args, { env });
  expect(code, `${args.join(" ")}: ${stderr} (called: ${await findCalled(watcher)})`).toBe(0);
  return JSON.parse(stdout);
}

const analysis = (id: string) => `{"id":"${id}","status":"succeeded","text":"with \\"escapes\\" \\u00e9"}`;

test("nothing that the migrations made is bound to what stands in public", async () => {
  const { rows } = await watcher.query(
    `select distinct made.identity, planted.identity as bound_to
     from pg_depend as d,
       pg_identify_object(d.classid, d.objid, d.objsubid) as made,
       pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) as planted
     where made.schema in ('sealpost', 'workspace', 'graphile_worker') and planted.schema = 'public'`,
  );
  expect(rows).toEqual([]);
});

test(
  "the command line",
  async () => {
    expect(await command("migrate")).toEqual({ applied: [] });
    const { account_id: account } = await command("account", "create", "--name", "Acme");
    await command("account", "list");
    const { key_id: key } = await command("key", "create", "--account", account, "--scopes", "webhooks:read");
    await command("key", "list", "--account", account);
    const named = ["--idp-user-id", "1", "--email", "ada@example.com", "--name", "Ada"];
    const { user_id: user } = await command("user", "create", "--account", account, ...named);
    await command("user", "list", "--account", account);
    await command("key", "create", "--user", user, "--scopes", "spaces:read");
    await command("key", "revoke", key);
    await command("endpoint", "set", "--account", account, "--url", "https://hooks.example.com/");
    await command("secret", "rotate", "--account", account);
    await command("audit", "list", "--account", account, "--actor", "command_line");
  },
  patience(120_000),
);

test("moving an account", async () => {
  const other = await createTestDatabase();
  const { accountId: account } = await api.newAccount();
  await publish(database.pool, account, analysis("moved"));
  const folder = await mkdtemp(join(tmpdir(), "sealpost-move-"));
  const keyFile = join(folder, "key");
  await writeFile(keyFile, env.SECRETS_KEY!);
  const target = ["--to", other.url, "--target-secrets-key-file", keyFile];
  const moving = ["account", "move", "--account", account, "--cell", "c2", ...target];
  for (const args of [moving, ["account", "delete-moved", "--account", account]]) {
    const { code, stderr } = await runSealpost(args, { env });
    expect(code, `${args.join(" ")}: ${stderr} (called: ${await findCalled(watcher)})`).toBe(0);
  }
  await other.drop();
  await rm(folder, { recursive: true });
});

describe("what a pipeline publishes from a session that searches elsewhere", () => {
  const role = `hostile_${randomBytes(4).toString("hex")}`;
  let pipeline: pg.Client;
  beforeAll(async () => {
    await database.pool.query(
      `create role ${role};
       grant usage on schema sealpost to ${role};
       grant execute on function sealpost.publish_analysis, sealpost.publish_analyses to ${role}`,
    );
    pipeline = new pg.Client({ connectionString: database.url });
    await pipeline.connect();
    await pipeline.query(
      `set role ${role};
       create temp view accounts as select public.trip(1) as id;
       create temp view settings as select public.trip(2) as id;
       create temp view announcing as select public.trip(3) as only_row;
       create domain pg_temp.uuid as pg_catalog.text check (public.trip(4));
       create domain pg_temp.json as pg_catalog.text check (public.trip(5));
       set search_path = pg_temp, public, pg_catalog`,
    );
  });
  afterAll(async () => {
    await pipeline.end();
    await database.pool.query(`drop owned by ${role}; drop role ${role}`);
  });

  // The session's own statements name no operator and no type: only what the functions do is looked at.
  test("one by one and many, known and refused", async () => {
    const { accountId } = api.account;
    const url = receiver.url("/sql").href;
    const id = await publish(pipeline, accountId, analysis("sql-1"), url);
    expect(await publish(pipeline, accountId, analysis("sql-1"), url)).toBe(id);
    const many = [analysis("sql-2"), analysis("sql-3")];
    expect(await publishMany(pipeline, [accountId, accountId], many, [url, null])).toHaveLength(2);
    const refused = [
      ['{"id":"x","status":"succeeded"}', "https://10.0.0.1/"],
      ["[]", null],
      [`{"id":"x","status":"succeeded","d":${"[".repeat(600)}${"]".repeat(600)}}`, null],
      [analysis("sql-1").replace("with", "without"), url],
    ] as const;
    for (const [text, hook] of refused) {
      await expect(publish(pipeline, accountId, text, hook)).rejects.toThrow(/^analysis at index 0/);
    }
  });
});

test("notices and their mails", async () => {
  const { pool } = database;
  const { accountId } = api.account;
  const url = receiver.url("/in").href;
  await setEndpoint(pool, accountId, url);
  await publish(pool, accountId, analysis("undelivered"));
  await pool.query("update sealpost.deliveries set status = 'failed' where analysis_id = 'undelivered'");
  const { body: recipient } = await api.ask("POST", "/v1/webhooks/notices/recipients", {
    body: { address: "bob@example.com" },
  });
  const told: string[] = [];
  const links: string[] = [];
  const send = async ({ text }: { text: string }) => {
    links.push(...(text.match(/(?<=confirm\/)\S+/g) ?? []));
    return { kind: "sent" } as const;
  };
  const sending = { pool, send, publicUrl: "https://api.example.com", onEnded: () => undefined };
  const { signal } = new AbortController();

  expect(await takeNoticeTurn(pool, 0)).toBe(true);
  while (await sendNextMail(sending, signal));
  const { ask, confirm } = confirmationsOf(pool);
  expect(await confirm(links[0] ?? "")).not.toBeNull();
  expect(await ask(links[0] ?? "")).not.toBeNull();
  const seen = { accountId, url, succeededAtMs: null, abandoned: 0, errorCode: "status_503" } as const;
  const streak = { failingSinceMs: Date.now() - DAY_MS, failedAttempts: 10 };
  await noteEndpointNews(pool, [{ ...seen, ...streak }]);
  await noteCertificates(pool, [{ accountId, host: new URL(url).host, expiresAtMs: Date.now() + DAY_MS }]);
  const news = { pool, analysisRetentionMs: DAY_MS, onNotice: (kind: string) => told.push(kind) };
  await lookForNews(news, signal);
  const healthy = { ...seen, url: null, errorCode: null, failingSinceMs: null, failedAttempts: 0 };
  await noteEndpointNews(pool, [{ ...healthy, succeededAtMs: Date.now() + 1_000 }]);
  await lookForNews(news, signal);
  expect(told.sort()).toEqual(["certificate.expiring", "endpoint.failing", "endpoint.recovered"]);
  expect(await collectMails(pool, { everyMs: DAY_MS, untilMs: DAY_MS, groupsMax: 10 })).toBe(3);
  while (await sendNextMail(sending, signal));
  expect(await giveUpCutMails(pool)).toEqual([]);
  const listed = await api.ask("GET", "/v1/webhooks/notices");
  expect(listed.body).toMatchObject({ total: 3 });
  expect(recipient).toMatchObject({ status: "unconfirmed" });
});

test("every operation of the API, and deliveries from publishing to housekeeping", async () => {
  const asked = new Set<string>();
  const operations = declaredOperations();
  async function ask(
    key: string,
    options: { id?: string; query?: string; body?: unknown; apiKey?: string } = {},
  ) {
    const { method, path } = operations.find((operation) => operation.key === key)!;
    asked.add(key);
    const address = path.replace(/\{\w+\}/, options.id ?? "") + (options.query ?? "");
    const answer = await api.ask(method, address, {
      ...(options.body === undefined ? {} : { body: options.body }),
      ...(options.apiKey === undefined ? {} : { key: options.apiKey }),
    });
    expect(answer.status, `${key}: ${answer.bytes} (called: ${await findCalled(watcher)})`).toBeLessThan(300);
    return answer.body;
  }
  const statusOf = async (id: string) =>
    (await ask("webhooks.deliveries.get", { id })) as { status: string; run: number; attempts_count: number };

  await ask("webhooks.endpoint.set", { body: { url: receiver.url("/in").href } });
  const reads =
    "endpoint.get endpoint.health signing_secret.get notices.recipients.list events.consumers.list";
  for (const name of reads.split(" ")) await ask(`webhooks.${name}`);
  for (const key of ["operations.list", "usage.get"]) await ask(key);
  await ask("webhooks.signing_secret.rotate");
  const staff = await api.newKey(null);
  await api.ask("GET", "/v1/webhooks/endpoint", {
    key: staff,
    headers: { "x-account-id": api.account.accountId },
  });

  const { delivery_id: flaky } = await ask("analyses.publish", {
    body: { analysis: JSON.parse(analysis("flaky")) },
  });
  const id = String(flaky);
  const dispatcher = startTestDispatcher(database, [receiver]);
  await dispatcher.waitForAttempts(1);
  await expect.poll(async () => (await statusOf(id)).status).toBe("failed");
  const query =
    "?status=failed&target_host=localhost&error_code=status_503&created_after=2020-01-01T00:00:00Z&limit=1";
  expect((await ask("webhooks.deliveries.list", { query })).items).toHaveLength(1);
  await ask("webhooks.deliveries.list");
  for (const query of ["?analysis_id=flaky", "?q=flaky", "?q=localhost"])
    await ask("webhooks.deliveries.list", { query });

  // The retry, before its time.
  await database.pool.query(
    "update sealpost.open_deliveries set due_at = now(), wake_at = now() where delivery_id = $1",
    [id],
  );
  await expect.poll(async () => (await statusOf(id)).status).toBe("succeeded");

  // Replays: of one delivery, and in bulk.
  await ask("webhooks.endpoint.remove");
  const [one, two] = await Promise.all(
    ["none-1", "none-2"].map((name) =>
      ask("analyses.publish", { body: { analysis: JSON.parse(analysis(name)) } }),
    ),
  );
  await ask("webhooks.endpoint.set", { body: { url: receiver.url("/in").href } });
  await ask("webhooks.deliveries.replay", { id: String(one!.delivery_id) });
  await expect.poll(async () => (await statusOf(String(one!.delivery_id))).status).toBe("succeeded");
  const replay = await ask("webhooks.replays.create", { body: { filter: { status: "abandoned" } } });
  await expect.poll(async () => (await statusOf(String(two!.delivery_id))).status).toBe("succeeded");
  await ask("webhooks.replays.get", { id: String(replay.id) });
  await ask("webhooks.replays.list");
  const other = await ask("webhooks.replays.create", { body: { filter: { status: "failed" } } });
  await api.ask("POST", `/v1/webhooks/replays/${other.id}/cancel`);
  asked.add("webhooks.replays.cancel");

  const url = receiver.url("/in").href;
  await insertRow(database.pool, "refusals", { account_id: api.account.accountId, url });
  await ask("webhooks.refusals.lift", { body: { url } });
  await ask("webhooks.endpoint.pause");
  await ask("webhooks.endpoint.test");
  const { delivery_id: held } = await ask("analyses.publish", {
    body: { analysis: { id: "held", status: "succeeded" } },
  });
  await ask("webhooks.endpoint.resume");
  await expect.poll(async () => (await statusOf(String(held))).status).toBe("succeeded");
  while ((await countActivity(database.pool, 0)).isBehind);
  await foldActivity(database.pool);
  expect((await ask("webhooks.activity")).top).toHaveLength(1);
  expect(await ask("webhooks.deliveries.body", { id: String(held) })).toMatchObject({ id: held });
  const recipient = await ask("webhooks.notices.recipients.add", { body: { address: "ada@example.com" } });
  await ask("webhooks.notices.recipients.remove", { id: String(recipient.id) });
  await ask("webhooks.notices.list", { query: "?kind=endpoint.failing" });

  const feedPool = createGeneralPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test feed",
    onError: () => undefined,
  });
  const sequenced = await countRows(database.pool, "deliveries");
  expect(await sequenceEvents(feedPool, randomUUID(), 1_000)).toMatchObject({ leads: true, sequenced });
  await endSequencingLease(feedPool, randomUUID());
  await readFeedLag(feedPool);
  await feedPool.end();
  const own = await countRows(database.pool, "deliveries", { account_id: api.account.accountId });
  const page = await ask("webhooks.events.list", { query: "?consumer=one" });
  expect(page.items).toHaveLength(own);
  await ask("webhooks.events.ack", { id: "one", body: { cursor: page.next_cursor } });
  const idle = "delete from sealpost.feed; update sealpost.feed_consumers set position = position - 9e10";
  await database.pool.query(idle);
  await ask("webhooks.events.list", { query: "?consumer=one" });
  await ask("webhooks.events.consumers.remove", { id: "one" });

  await ask("analyses.get", { id: "flaky" });
  await ask("webhooks.endpoint.test");
  await ask("webhooks.endpoint.check");
  await ask("analyses.erase", { id: "flaky" });
  const made = await ask("api_keys.create", { body: { name: "made", scopes: ["webhooks:read"] } });
  await ask("api_keys.list");
  await ask("api_keys.revoke", { id: String(made.id) });
  const who = { idp_user_id: "one", email: "one@example.com", name: "One" };
  const added = await ask("users.create", { body: who });
  await ask("users.list");
  await ask("users.disable", { id: String(added.id) });
  await ask("console.links.create", { body: { viewer: { id: "one", label: "One" } } });
  for (const key of ["console.sessions.list", "console.sessions.revoke", "audit.list"]) await ask(key);
  const some =
    "?actor=key&operation=api_keys.revoke&created_after=2020-01-01T00:00:00Z&created_before=2999-01-01T00:00:00Z";
  expect((await ask("audit.list", { query: some })).items).toHaveLength(1);
  expect((await ask("accounts.list", { apiKey: staff, query: "?name=test" })).items).toHaveLength(2);
  await ask("accounts.list", { apiKey: staff, query: "?failing=true" });
  await ask("accounts.replays.list", { apiKey: staff });
  await ask("accounts.audit.list", { apiKey: staff });
  for (const q of ["flaky", id, id.slice(0, 8), "hooks.example.com", "test"])
    await ask("search.find", { apiKey: staff, query: `?q=${q}` });
  const known: Made = { user: (await api.newUser(api.account.accountId)).userId };
  for (const { writes, reads } of areaTests) {
    for (const [key, request] of Object.entries({ ...writes, ...reads })) {
      const { status, bytes, body } = await request(api.ask, known);
      expect(status, `${key}: ${bytes} (called: ${await findCalled(watcher)})`).toBeLessThan(300);
      known[key] = String(body?.id);
      asked.add(key);
    }
  }
  expect([...asked].sort()).toEqual(operations.map(({ key }) => key).sort());
  expect(dispatcher.failures).toEqual([]);
  await dispatcher.stop();

  const lines: string[] = [];
  await database.pool.query("delete from sealpost.open_deliveries");
  await keepHouse(database.pool, {
    retention: {
      analysisRetentionMs: DAY_MS,
      logRetentionMs: DAY_MS,
      auditRetentionMs: 0,
      idempotencyRetentionMs: 0,
    },
    at: new Date(Date.now() + 10 * DAY_MS),
    signal: new AbortController().signal,
    log: pino({}, { write: (line) => lines.push(JSON.parse(line).msg) }),
  });
  expect(lines).toContain("dropped a partition");
});
