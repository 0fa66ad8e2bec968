// An account with something in every table and in the object store is erased, and nothing of it is found.
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { Pool } from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { eraseFromAreas } from "../../src/app/areas.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { type Erased, eraseAccount } from "../../src/cells/erase-account.ts";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import { forgetErased } from "../../src/workspace/store/erasing.ts";
import { areaTests } from "../support/areas.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { claim, openDispatchPool } from "../support/delivery-rows.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import {
  changeRows,
  countRows,
  insertLog,
  insertRow,
  publish,
  publishAny,
  rowsOf,
} from "../support/installation.ts";
import { startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";
import { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { documentsOf } from "./support/documents.ts";
import { endKeeping, removeAll } from "./support/moving.ts";
import { keysIn, openFileStore } from "./support/object-listing.ts";
import { claimNext, endWaits, sequenceAll, startTestRunner, take } from "./support/runs.ts";

let database: TestDatabase;
let api: TestApi;
let store: ObjectStore;
beforeEach(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  store = await openFileStore(join(api.stateDir, "objects"));
});
afterEach(async () => {
  await store.close();
  await api.close();
  await database.drop();
});

const URL = "https://hooks.example.com/x";

/** Rows of tables that requests do not fill, or not soon. */
async function insertRows(
  pool: Pool,
  canary: string,
  { accountId: account_id, userId: user_id }: TestAccount,
  space_id: string,
): Promise<void> {
  const [log] = await rowsOf(pool, "deliveries", { account_id, status: "abandoned" });
  const now = new Date();
  const attempt = { account_id, run: 1, started_at: now, ended_at: now, outcome: "rejected" };
  const answered = { error_code: "status_500", status_code: 500, target_url: URL, response_excerpt: canary };
  for (const number of [1, 2, 3])
    await insertRow(pool, "attempts", { ...attempt, ...answered, delivery_id: log!.id, number });
  await insertRow(pool, "late_attempts", {
    account_id,
    outcome: "succeeded",
    started_at: now,
    ended_at: now,
  });
  await insertRow(pool, "activity", {
    ...{ account_id, bucket: now, target_host: "hooks.example.com", outcome: "succeeded", attempts: 1 },
    ...{ duration_ms: 1, first_at: now, last_at: now },
  });
  const waiting = { account_id, run: 1, attempts_in_run: 0, interruptions: 0, body_bytes: 9 };
  for (let n = 0; n < 3; n++) {
    await insertRow(pool, "held_deliveries", { ...waiting, delivery_id: randomUUID() });
    await insertRow(pool, "parked_deliveries", { ...waiting, delivery_id: randomUUID(), is_held: true });
  }
  const replay = await insertRow(pool, "replays", {
    ...{ account_id, status: "running", filter: "{}", rate_per_second: 1, matched: 1 },
    ...{ created_at: now, paced_at: now, note: canary },
  });
  await insertRow(pool, "replay_items", { replay_id: replay.id, position: 1, delivery_id: log!.id });
  const notice = { account_id, kind: "secret.expiring", subject: "s", details: "{}" };
  await insertRow(pool, "notices", notice);
  const address = `${canary}@example.com`;
  const recipient = await insertRow(pool, "notice_recipients", { account_id, address });
  await insertRow(pool, "notice_mails", { account_id, recipient_id: recipient.id, address });
  await insertRow(pool, "endpoint_health", { account_id, failed_attempts: 3 });
  await insertRow(pool, "endpoint_certificates", { account_id, host: "hooks.example.com", ends_at: now });
  await insertRow(pool, "answered_lanes", { account_id, lane: "7" });
  await insertRow(pool, "quotas", { account_id, quota: "documents", most: 1_000 });
  await insertRow(pool, "refusals", { account_id, url: URL });
  await insertRow(pool, "receivers", { account_id, origin: "https://hooks.example.com", proven_at: now });
  await insertRow(pool, "published", { account_id, user_id, day: now });
  await insertRow(pool, "erasures", { account_id, analysis_id: canary });
  await insertRow(pool, "forgetting", { account_id, delivery_id: randomUUID(), look_at: now });
  const reader = { account_id, name: canary, position: 0, updated_at: now, key_id: randomUUID() };
  await insertRow(pool, "feed_consumers", reader);
  await insertRow(pool, "console_sessions", {
    ...{
      account_id,
      permissions: ["webhooks:read"],
      viewer_label: canary,
      expires_at: new Date(Date.now() + 1e6),
    },
    ...{ digest: createHash("sha256").update(account_id).digest(), entered_at: now },
  });
  await insertRow(pool, "workspace.moves", { account_id, space_id, next_at: new Date(Date.now() + 1e9) });
  await insertRow(pool, "workspace.feed_readers", { account_id, position: 0 });
}

const DELIVERIES = 8_000;
const DOCUMENTS = 100;

/**
 * An account with something everywhere. Returns it with a text that nobody else's rows have, and the key of an upload
 * that is under way.
 */
async function fill(): Promise<TestAccount & { readonly canary: string; readonly reserved: string }> {
  const { pool } = database;
  const canary = `canary-${randomBytes(6).toString("hex")}`;
  const account = await api.newAccount();
  const { accountId, userId, key } = account;
  const made = await areaTests[0]!.makeThings(api, account);
  const endpoint = await api.ask("PUT", "/v1/webhooks/endpoint", { key: account.ownKey, body: { url: URL } });
  expect(endpoint.status).toBe(200);
  const analysis = { id: canary, status: "succeeded", text: canary };
  for (let n = 0; n < 2; n++) await api.ask("POST", "/v1/analyses", { key: account.ownKey, body: analysis });
  await publishAny(pool, accountId, DELIVERIES);
  await publish(pool, accountId, '{"id":"own","status":"failed"}', "https://own.example.com/");
  await insertLog(pool, accountId, 50);
  await insertLog(pool, accountId, 50, { name: "ended", isReplayable: true });
  const dispatchPool = openDispatchPool(database);
  const open = await rowsOf(pool, "open_deliveries", { account_id: accountId });
  await claim(
    dispatchPool,
    open.slice(0, 20).map(({ delivery_id }) => delivery_id),
  );
  await dispatchPool.end();
  await sequenceAll(pool);

  const space = made.space_id!;
  const documents = documentsOf(api.ask);
  for (let n = 0; n < DOCUMENTS; n++)
    await documents.uploaded({ space_id: space, file_name: `${canary} ${n}` }, undefined, { key });
  await documents.created({ space_id: space, file_name: "empty" }, { key });
  let parent_id: unknown;
  for (const name of ["outer", "inner", "innermost"]) {
    const body = { name, ...(parent_id !== undefined && { parent_id }) };
    parent_id = (await api.ask("POST", `/v1/spaces/${space}/folders`, { key, body })).body.id;
  }
  const { id: deleted } = await documents.uploaded({ space_id: space, file_name: canary }, undefined, {
    key,
  });
  for (const path of [`/v1/documents/${deleted}`, `/v1/spaces/${space}/folders/${parent_id}`])
    expect((await api.ask("DELETE", path, { key })).status).toBe(200);
  // One run has ended, which has published, and a step of another is being taken.
  const step = await claimNext(pool);
  expect(await take({ pool, objects: store }, step!)).toBe("run_succeeded");
  await api.ask("POST", `/v1/workflows/${made.workflow_id}/runs`, { key });
  expect(await claimNext(pool)).toMatchObject({ accountId });
  const ofRun = { account_id: accountId, run_id: made.run_id, sequence: 1 };
  await insertRow(pool, "workspace.node_items", { ...ofRun, index: 900, item: "{}" });
  await insertRows(pool, canary, account, space);
  const hook = await api.ask("POST", `/v1/workflows/${made.workflow_id}/hook`, { key });
  expect(hook.status).toBe(201);
  await insertRow(pool, "workspace.schedules", {
    ...{ account_id: accountId, workflow_id: made.workflow_id, node_id: "at", cron: "0 5 * * *" },
    ...{ time_zone: "UTC", catch_up_seconds: 60 },
  });
  const reserved = `spaces/${canary}/under-way`;
  await insertRow(pool, "workspace.loose_objects", {
    ...{ account_id: accountId, user_id: userId, storage_key: reserved, is_reserved: true },
    ...{ bytes: 4, remove_at: new Date(Date.now() + 86_400_000) },
  });
  await store.put(reserved, Readable.from([Buffer.from("late")]), 4);
  return { ...account, canary, reserved };
}

type Filled = Awaited<ReturnType<typeof fill>>;

/** Tables of any schema, with their columns. */
async function findTables(): Promise<readonly { name: string; columns: readonly string[] }[]> {
  const { rows } = await database.pool.query<{ name: string; columns: string[] }>(
    `select relnamespace::regnamespace || '.' || relname as name, array_agg(attname::text) as columns
     from pg_class as c left join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0
     where relkind in ('r', 'p') and not relispartition
       and relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema')
     group by 1 order by 1`,
  );
  return rows;
}

/** The tables in which a row has one of these texts. */
async function tablesWith(...texts: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const { name } of await findTables()) {
    const { rowCount } = await database.pool.query(
      `select from ${name} as t where exists (select from unnest($1::text[]) as w (x) where strpos(t::text, x) > 0)
       limit 1`,
      [texts],
    );
    if (rowCount === 1) found.push(name);
  }
  return found;
}

/** Wake-ups have ids only, and go when a dispatcher takes them; so do counts of requests, within an hour. */
const IDS_FOR_A_WHILE = ["graphile_worker._private_jobs", "sealpost.rate_limits"];
const KEPT = ["sealpost.accounts", "sealpost.audit_log", "sealpost.erasures"];
/** Until the key of an upload that was under way has been looked at once more. */
const KEPT_FOR_A_DAY = ["workspace.loose_objects", "workspace.storage", "workspace.workspaces"];

/** In this process. */
const erase = (accountId: string, onProgress: (line: string) => void = () => undefined): Promise<Erased> =>
  eraseAccount({
    pool: database.pool,
    accountId,
    name: "test",
    waitMaxMs: patience(60_000),
    tooLong: (_, whom) => new Error(`waited for ${whom}`),
    eraseFromAreas: (onPage) =>
      eraseFromAreas(database.pool, readConfig({ STATE_DIR: api.stateDir }), accountId, onPage),
    onProgress,
  });

/** All that an account has. */
async function readAll(accountId: string): Promise<Readonly<Record<string, readonly string[]>>> {
  const tables = (await findTables()).filter(({ columns }) => columns.includes("account_id"));
  const read = async (name: string) => {
    const { rows } = await database.pool.query<{ row: string }>(
      `select to_jsonb(t)::text as row from ${name} as t where account_id = $1 order by 1`,
      [accountId],
    );
    return [name, rows.map(({ row }) => row)] as const;
  };
  return Object.fromEntries(await Promise.all(tables.map(({ name }) => read(name))));
}

/** But for what says that it was erased, and the key of the upload that was under way. */
async function expectNothingOf({ accountId, userId, canary, reserved }: Filled): Promise<void> {
  const left = (await tablesWith(accountId)).filter((name) => !IDS_FOR_A_WHILE.includes(name));
  expect(left).toEqual([...KEPT, ...KEPT_FOR_A_DAY]);
  expect((await tablesWith(canary, userId)).filter((name) => !IDS_FOR_A_WHILE.includes(name))).toEqual([
    "workspace.loose_objects",
  ]);
  expect(await rowsOf(database.pool, "workspace.loose_objects", { account_id: accountId })).toMatchObject([
    { storage_key: reserved, user_id: null, is_reserved: false, bytes: "0" },
  ]);
  expect((await keysIn(store)).filter((key) => key.includes(canary))).toEqual([]);
}

const timeout = patience(300_000);

test("an account is erased by a command that is killed twenty times, and nobody else notices", {
  timeout,
}, async () => {
  const other = await fill();
  const account = await fill();
  const { accountId } = account;
  const empty = Object.entries(await readAll(accountId)).filter(([, rows]) => rows.length === 0);
  expect(empty.map(([name]) => name)).toEqual(["sealpost.moves"]);
  const others = await readAll(other.accountId);
  const objects = await keysIn(store);

  const command = ["account", "erase", "--account", accountId, "--confirm", "test"];
  const env = { DATABASE_URL: database.url, STATE_DIR: api.stateDir };
  const places = new Set<string>();
  for (let kills = 0; kills < 20; kills++) {
    const killed = new SealpostProcess(command, env);
    const place = ["closed", "waiting"][kills] ?? "deleting";
    const { msg } = await killed.waitForLine((line) => String(line.msg).startsWith(place));
    places.add(String(msg));
    await killed.kill();
    expect(await killed.ended).toMatchObject({ signal: "SIGKILL" });
  }
  expect(places.size).toBeGreaterThan(5);
  for (let times = 0; times < 2; times++) {
    const { finished } = new SealpostProcess(command, env);
    expect(await finished).toMatchObject({ code: 0, stdout: expect.stringContaining('"objects_left":1') });
  }

  await expectNothingOf(account);
  expect(await readAll(other.accountId)).toEqual(others);
  // Both had as many, beside the store's own id.
  expect(await keysIn(store)).toHaveLength((objects.length - 1) / 2 + 1);
  const id = await publish(database.pool, accountId, '{"id":"x","status":"failed"}');
  expect(await publish(database.pool, accountId, '{"id":"x","status":"failed"}')).toBe(id);
  expect(await tablesWith(id)).toEqual([]);
});

test("an account is erased wherever that was cut off, each time at another place", { timeout }, async () => {
  const account = await fill();
  // Twice at each place, so that what a table has over one page is cut in the middle, too.
  const cuts = new Map<string, number>();
  const onProgress = (line: string) => {
    const times = cuts.get(line) ?? 0;
    if (times === 2 || line.includes("pid")) return;
    cuts.set(line, times + 1);
    throw new Error("cut");
  };
  let erased: Erased | null = null;
  while (erased === null) {
    erased = await erase(account.accountId, onProgress).catch((error: Error) => {
      if (error.message !== "cut") throw error;
      return null;
    });
  }
  expect(erased).toMatchObject({ outcome: "erased", objectsLeft: 1 });
  expect(cuts.size).toBeGreaterThan(40);
  await expectNothingOf(account);
});

test("what is erased while attempts are made and runs go on leaves nothing behind", { timeout }, async () => {
  await using resources = new AsyncDisposableStack();
  const answering = Promise.withResolvers<void>();
  const receiver = await startReceiver({
    handler: async () => {
      await answering.promise;
      return { status: 500, body: "an excerpt" };
    },
  });
  resources.defer(() => receiver.close());
  const account = await fill();
  const { accountId } = account;
  await changeRows(database.pool, "endpoints", { account_id: accountId }, { url: receiver.url("/").href });
  await endWaits(database.pool);
  const dispatcher = startTestDispatcher(database, [receiver], {
    ATTEMPT_DEADLINE_MS: "100000",
  });
  await using working = new AsyncDisposableStack();
  working.defer(() => dispatcher.stop());
  const runner = startTestRunner(database.pool, store);
  working.defer(() => runner.stop());
  await receiver.waitForRequests(1);
  expect(await erase(accountId)).toMatchObject({ outcome: "erased" });
  const posted = receiver.requests.length;
  answering.resolve();
  // Wake-ups find nothing, and what was in flight is written down nowhere.
  await expect
    .poll(() => countRows(database.pool, "graphile_worker._private_jobs"), { timeout: patience(30_000) })
    .toBe(0);
  await working.disposeAsync();
  await expectNothingOf(account);
  expect(receiver.requests.length).toBe(posted);
  expect(runner.errors).toEqual([]);
  expect(dispatcher.failures).toEqual([]);
});

test(
  "an upload that ends after the account was erased is removed a day later, with all that it refers to",
  async () => {
    const { accountId, reserved } = await fill();
    expect(await erase(accountId)).toMatchObject({ objectsLeft: 1 });
    await store.put(reserved, Readable.from([Buffer.from("late")]), 4);
    await removeAll(database.pool, store);
    expect(await keysIn(store, "spaces/")).toEqual([reserved]);
    await endKeeping(database.pool, true);
    await removeAll(database.pool, store);
    await forgetErased(database.pool);
    expect(await keysIn(store, "spaces/")).toEqual([]);
    const left = (await tablesWith(accountId)).filter((name) => !IDS_FOR_A_WHILE.includes(name));
    expect(left).toEqual(KEPT);
  },
  timeout,
);
