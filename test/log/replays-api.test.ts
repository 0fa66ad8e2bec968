import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { API_LIMITS } from "../../src/app/api-server.ts";
import { writeStorageLimits } from "../../src/base/database/storage.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { storageLimitsOf } from "../../src/base/model/storage.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import { createReplay, type StoredReplay } from "../../src/log/replays-sql.ts";
import { changeRows, deleteRows, insertLog } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import { type Json, startTestApi, type TestAccount } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/replays";
const WEEK_MS = 7 * 86_400_000;
const UNKNOWN = "01900000-0000-7000-8000-000000000000";

const { database, api } = await openApi();
let account: TestAccount;
beforeEach(async () => {
  // What earlier tests left running would take part in the steps of this one.
  await deleteRows(database.pool, "replays");
  account = await api.newAccount();
});

/** Abandoned for want of a target; the first `failed` of them failed instead. Oldest first. */
async function abandon(count: number, failed = 0, of = account): Promise<string[]> {
  const ids: string[] = [];
  for (let n = 0; n < count; n++) {
    const body = { analysis: { id: `r-${n}`, status: "succeeded" } };
    ids.push((await api.ask("POST", "/v1/analyses", { ...of, body })).body.delivery_id as string);
  }
  await changeRows(
    database.pool,
    "deliveries",
    { id: ids.slice(0, failed) },
    { status: "failed", reason: null },
  );
  return ids;
}

const create = (body: unknown, asked: { readonly idempotencyKey?: string; readonly key?: string } = {}) =>
  api.ask("POST", path, { ...account, body, ...asked });
const read = async (id: unknown) => (await api.ask("GET", `${path}/${id}`, account)).body;
/** One step of all replays, so many seconds after the newest was made. */
async function step(seconds: number): Promise<void> {
  const { rows } = await database.pool.query<{ at: Date }>(
    "select max(created_at) + ($1 + 0.05) * interval '1 second' as at from sealpost.replays",
    [seconds],
  );
  await advanceReplays(database.pool, WEEK_MS, rows[0]?.at ?? null);
}

/** As whoever has the database's password would make one. */
async function byCommandLine() {
  const limits = { runningMax: 10, waitingMax: 10 };
  const unasked = {
    filter: {},
    expectedMatched: null,
    note: null,
    createdBy: COMMAND_LINE,
  };
  const made = await inTransaction(database.pool, (client) =>
    createReplay(client, wholeAccount(account.accountId), {
      ...unasked,
      ratePerSecond: 1,
      analysisRetentionMs: WEEK_MS,
      limits,
    }),
  );
  return made as StoredReplay;
}

const NO_FILTER = {
  status: null,
  reason: null,
  event: null,
  analysis_id: null,
  target_host: null,
  error_code: null,
  status_code: null,
  status_code_min: null,
  status_code_max: null,
  replay_id: null,
  created_after: null,
  created_before: null,
};

describe("creating a replay", () => {
  test("fixes its set, and goes through it at its pace", async () => {
    await abandon(25, 3);
    const created = await create({ filter: {} });
    expect(created.status).toBe(202);
    expect(created.body).toEqual({
      id: expect.any(String),
      status: "running",
      filter: NO_FILTER,
      rate_per_second: 10,
      matched: 25,
      replayed: 0,
      skipped: 0,
      succeeded: 0,
      waiting: 0,
      failing: 0,
      failing_causes: [],
      failed: 0,
      note: null,
      created_by: { staff: false, key_id: expect.any(String), name: null, viewer: null },
      created_at: expect.stringMatching(/^\d{4}-.*\.\d{3}Z$/),
      ended_at: null,
    });
    const { id } = created.body;
    await step(1);
    expect(await read(id)).toMatchObject({ status: "running", replayed: 10, skipped: 0 });
    await step(2);
    expect(await read(id)).toMatchObject({ replayed: 20 });
    await step(3);
    expect(await read(id)).toMatchObject({
      status: "delivering",
      replayed: 25,
      waiting: 25,
      ended_at: null,
    });
  });

  test("takes what fits the filter and nothing else", async () => {
    await abandon(4, 1);
    const filter = { status: "abandoned", analysis_id: "r-2", event: null };
    const { body } = await create({ filter, rate_per_second: 1000 });
    expect(body).toMatchObject({
      matched: 1,
      rate_per_second: 1000,
      filter: { ...NO_FILTER, status: "abandoned", analysis_id: "r-2" },
    });
  });

  test("takes none of another account's", async () => {
    await abandon(2, 0, await api.newAccount());
    expect((await create({ filter: {} })).body).toMatchObject({ matched: 0, status: "done" });
  });

  test("skips what another replay has taken", async () => {
    await abandon(3);
    const [first, second] = [await create({ filter: {} }), await create({ filter: {} })];
    await step(1);
    expect(await read(first.body.id)).toMatchObject({ replayed: 3, skipped: 0 });
    expect(await read(second.body.id)).toMatchObject({ replayed: 0, skipped: 3, status: "done" });
  });

  test("is refused beyond what one account may have running, until one has started all it has", async () => {
    await abandon(3);
    const replays = await Promise.all(
      Array.from({ length: 5 }, () => create({ filter: {}, rate_per_second: 1 }, { key: account.ownKey })),
    );
    expect(replays.map(({ status }) => status)).toEqual([202, 202, 202, 202, 202]);
    const refused = await create({ filter: {} }, { key: account.ownKey });
    expect(refused.status).toBe(409);
    expect(refused.body).toMatchObject({ code: "too_many_replays", title: "Too many replays" });
    expect((await create({ filter: {}, dry_run: true })).status, "counting is no replay").toBe(200);
    await api.ask("POST", `${path}/${replays[0]!.body.id}/cancel`, { key: account.ownKey });
    expect((await create({ filter: {} })).status).toBe(202);
  });

  test("is refused beyond a user's share: half of what others leave, running or waiting", async () => {
    await abandon(3);
    const other = await api.newUser(account.accountId);
    const asked = { filter: {}, rate_per_second: 1 };
    const statuses = async (key: string, times: number) => {
      const answers = [];
      for (let n = 0; n < times; n++) answers.push(await create(asked, { key }));
      return answers.map(({ status }) => status);
    };
    expect(await statuses(account.key, 4)).toEqual([202, 202, 202, 409]);
    expect(await statuses(other.key, 2)).toEqual([202, 409]);
    expect(await statuses(account.ownKey, 2)).toEqual([202, 409]);
    await deleteRows(database.pool, "replays");
    const few = await startTestApi(
      database,
      {},
      { limits: { replays: { ...API_LIMITS.replays, waitingMax: 9 } } },
    );
    onTestFinished(() => few.close());
    const statusOf = async (key: string) => (await few.ask("POST", path, { key, body: asked })).status;
    expect([await statusOf(account.key), await statusOf(account.key)]).toEqual([202, 409]);
    expect([await statusOf(other.key), await statusOf(account.ownKey)]).toEqual([202, 202]);
  });

  test("is refused beyond what all of them may take; cancelled ones keep only what they started", async () => {
    await abandon(12);
    const { ownKey: key } = account;
    const limits = storageLimitsOf(2 ** 40, null);
    await writeStorageLimits(database.pool, { ...limits, replays: 2 * 1_024 + 22 * 256 });
    onTestFinished(() => writeStorageLimits(database.pool, limits));
    const held = async () => {
      const { storage } = (await api.ask("GET", "/v1/usage", { key })).body as {
        storage: Json[];
      };
      const counted = await database.pool.query("select from sealpost.replay_items");
      return [storage.find(({ kind }) => kind === "replays")!.bytes, counted.rowCount];
    };
    const { id } = (await create({ filter: {} }, { key })).body;
    await step(1);
    expect(await held()).toEqual([1_024 + 12 * 256, 12]);
    await api.ask("POST", `${path}/${id}/cancel`, { key });
    expect(await held()).toEqual([1_024 + 10 * 256, 10]);
    expect(await read(id)).toMatchObject({ status: "cancelled", matched: 12, replayed: 10, waiting: 10 });
    const { accountId } = account;
    await changeRows(
      database.pool,
      "deliveries",
      { account_id: accountId },
      { status: "failed", reason: null },
    );
    expect((await create({ filter: {} }, { key })).status).toBe(202);
    const refused = await create({ filter: {} }, { key });
    expect([refused.status, refused.body.code]).toEqual([409, "storage_full"]);
    expect(JSON.stringify(refused.body.errors)).toContain('kind \\"replays\\"');
    expect(await held()).toEqual([2 * 1_024 + 22 * 256, 22]);
  });

  test("under one Idempotency-Key happens once", async () => {
    await abandon(1);
    const first = await create({ filter: {} }, { idempotencyKey: "once" });
    const again = await create({ filter: {} }, { idempotencyKey: "once" });
    expect([again.status, again.body]).toEqual([202, first.body]);
    expect((await create({ filter: {}, rate_per_second: 1 }, { idempotencyKey: "once" })).status).toBe(422);
    expect((await api.ask("GET", path, account)).body.total).toBe(1);
  });

  test("as a dry run counts, and does nothing", async () => {
    await abandon(3, 1);
    const dry = await create({ filter: { status: "failed" }, dry_run: true });
    expect([dry.status, dry.body]).toEqual([200, { dry_run: true, matched: 1, own_url: 0, expired: 0 }]);
    expect((await api.ask("GET", path, account)).body).toEqual({ items: [], next_cursor: null, total: 0 });
  });

  test("is refused when other than the expected number match, and then does nothing", async () => {
    await abandon(3);
    const refused = await create({ filter: {}, expected_matched: 4 });
    expect([refused.status, refused.body.code]).toEqual([409, "replay_changed"]);
    expect((await api.ask("GET", path, account)).body.total).toBe(0);
    expect((await create({ filter: {}, expected_matched: 3 })).status).toBe(202);
  });

  test("keeps its note, the longest too, and tells who made it", async () => {
    const note = "é".repeat(500);
    const { id } = (await create({ filter: {}, note })).body;
    expect(await read(id)).toMatchObject({ note, created_by: { name: null } });
    const { created_by, note: none } = await byCommandLine();
    expect([created_by, none], "made by no key").toEqual([null, null]);
  });

  test("counts what has succeeded, what waits and what was given up, until nothing waits", async () => {
    const ids = await abandon(3);
    const { id } = (await create({ filter: {} })).body;
    await step(1);
    const change = (at: number, status: string, reason: string | null) =>
      changeRows(database.pool, "deliveries", { id: ids[at] }, { status, reason });
    await change(0, "succeeded", null);
    await change(1, "failed", null);
    await change(2, "abandoned", "window_ended");
    const progress = { status: "delivering", replayed: 3, succeeded: 1, waiting: 1, failing: 1, failed: 1 };
    expect(await read(id)).toMatchObject({ ...progress, failing_causes: [] });
    await changeRows(database.pool, "deliveries", { id: ids[1] }, { last_error_code: "status_503" });
    expect((await read(id)).failing_causes).toEqual([{ error_code: "status_503", deliveries: 1 }]);
    await changeRows(database.pool, "replays", { id }, { status: "done", ended_at: new Date() });
    expect(await read(id), "another replay's").toMatchObject({ waiting: 0, failing: 0, failing_causes: [] });
    await changeRows(database.pool, "replays", { id }, { status: "delivering", ended_at: null });
    const { body } = await api.ask(
      "GET",
      `/v1/webhooks/deliveries?replay_id=${id}&status=abandoned`,
      account,
    );
    expect(body).toMatchObject({ items: [{ id: ids[2], replay_id: id }], total: 1 });
  });

  test("of more than 100,000 is refused, as a dry run too", { tags: ["slow"] }, async () => {
    await insertLog(database.pool, account.accountId, 100_001, { isReplayable: true });
    for (const dry_run of [true, false]) {
      const refused = await create({ filter: {}, dry_run });
      expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
      expect(refused.body.errors).toEqual([
        { path: "body.filter", message: expect.stringMatching(/^More than 100,000/) },
      ]);
    }
    await deleteRows(database.pool, "deliveries", { account_id: account.accountId });
  });

  test.each([
    [{}, "body.filter"],
    [{ filter: [] }, "body.filter"],
    [{ filter: { status: "succeeded" } }, "body.filter.status"],
    [{ filter: { status: "pending" } }, "body.filter.status"],
    [{ filter: { limit: 5 } }, "body.filter.limit"],
    [{ filter: { created_after: "now" } }, "body.filter.created_after"],
    [{ filter: {}, rate_per_second: 0 }, "body.rate_per_second"],
    [{ filter: {}, rate_per_second: 1001 }, "body.rate_per_second"],
    [{ filter: {}, rate_per_second: "10" }, "body.rate_per_second"],
    [{ filter: {}, dry_run: 1 }, "body.dry_run"],
    [{ filter: { error_code: "dns_notfound" } }, "body.filter.error_code"],
    [{ filter: { reason: [] } }, "body.filter.reason"],
    [{ filter: {}, expected_matched: -1 }, "body.expected_matched"],
    [{ filter: {}, note: "n".repeat(501) }, "body.note"],
    [{ filter: {}, note: "a\u0000b" }, "body.note"],
    [{ filter: {}, note: "a\ud800" }, "body.note"],
  ])("with %j is refused", async (body, wrongPath) => {
    const refused = await create(body);
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
    expect(refused.body.errors).toMatchObject([{ path: wrongPath }]);
  });
});

describe("a replay that exists", () => {
  test("is listed, the newest first, page by page", async () => {
    await abandon(1);
    const made: unknown[] = [];
    for (let n = 0; n < 5; n++) made.unshift((await create({ filter: {} }, { key: account.ownKey })).body);
    const asked = { key: account.ownKey };
    const first = await api.ask("GET", `${path}?limit=3`, asked);
    expect(first.body).toMatchObject({ items: made.slice(0, 3), total: 5 });
    const second = await api.ask("GET", `${path}?limit=3&cursor=${first.body.next_cursor}`, asked);
    expect(second.body).toEqual({ items: made.slice(3), next_cursor: null, total: 5 });
  });

  test("is cancelled: what it has replayed stays so, and no more follows", async () => {
    await abandon(15);
    const { id } = (await create({ filter: {} })).body;
    await step(1);
    const cancelled = await api.ask("POST", `${path}/${id}/cancel`, account);
    expect(cancelled.status).toBe(200);
    expect(cancelled.body).toMatchObject({ id, status: "cancelled", replayed: 10, matched: 15 });
    expect(cancelled.body.ended_at).not.toBeNull();
    await step(5);
    expect(await read(id)).toEqual(cancelled.body);
    expect((await api.ask("POST", `${path}/${id}/cancel`, account)).body).toEqual(cancelled.body);
  });

  test("of others is cancelled by no user, who is told neither their names nor why", async () => {
    await abandon(1);
    const other = await api.newUser(account.accountId);
    const newKey = { name: "second", scopes: ["webhooks:replay"] };
    const made = await api.ask("POST", "/v1/api-keys", { key: account.key, body: newKey });
    const hers = [account.key, String(made.body.api_key)];
    const cancel = (id: unknown, key: string) => api.ask("POST", `${path}/${id}/cancel`, { key });
    for (const [maker, strangers, cancelling] of [
      [account.key, [other.key], hers[1]!],
      [other.key, hers, account.ownKey],
      [account.ownKey, [...hers, other.key], account.ownKey],
    ] as const) {
      const { body } = await create({ filter: {}, note: "why" }, { key: maker });
      expect(body).toMatchObject({ note: "why", created_by: { staff: false, key_id: expect.any(String) } });
      for (const key of strangers) {
        const hidden = { ...body, note: null, created_by: null };
        expect((await api.ask("GET", `${path}/${body.id}`, { key })).body).toEqual(hidden);
        expect((await api.ask("GET", path, { key })).body.items).toContainEqual(hidden);
        const refused = await cancel(body.id, key);
        expect([refused.status, refused.body.code]).toEqual([403, "access_denied"]);
      }
      const { ended_at, ...stopped } = (await cancel(body.id, cancelling)).body;
      expect({ ...stopped, ended_at: null }).toEqual({ ...body, status: "cancelled" });
      expect(ended_at).not.toBeNull();
    }
  });

  test("that has ended stays as it is when it is cancelled", async () => {
    const { body } = await create({ filter: {} });
    const cancelled = await api.ask("POST", `${path}/${(body as Json).id}/cancel`, account);
    expect([cancelled.status, cancelled.body]).toEqual([200, body]);
  });

  test.each(["GET", "POST"])("and one that does not, and what is no id: %s", async (method) => {
    const end = method === "POST" ? "/cancel" : "";
    const unknown = await api.ask(method, `${path}/${UNKNOWN}${end}`, account);
    expect([unknown.status, unknown.body.code]).toEqual([404, "not_found"]);
    const malformed = await api.ask(method, `${path}/x${end}`, account);
    expect([malformed.status, malformed.body.code]).toEqual([400, "invalid_request"]);
  });
});
