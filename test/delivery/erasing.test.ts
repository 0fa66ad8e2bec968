import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { idsOfRuns } from "../../src/app/areas.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { writeAnalysesUrl } from "../../src/delivery/endpoint-sql.ts";
import { eraseAnalysis, forgetDelivered, knowAsErased } from "../../src/delivery/erase-sql.ts";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import { verifySignature } from "../../src/signing/index.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher, unsafeAllowed } from "../support/dispatching.ts";
import {
  allowTargets,
  begin,
  changeRows,
  countRows,
  deleteRows,
  insertRow,
  publish,
  tablesWith,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

let database: TestDatabase;
let receiver: Receiver;
let api: TestApi;
let dispatcher: TestDispatcher;
/** Receivers' answers that wait, by path. */
const hanging = new Map<string, () => void>();

beforeAll(async () => {
  // Each answer repeats what was sent, as those of frameworks in debug mode do.
  const handler = async ({ path, body }: { path: string; body: Buffer }) => {
    const answer = {
      status: Number(path.slice(1, 4)),
      body: body.toString(),
      headers: { "x-echo": "canary" },
    };
    if (path.includes("hang")) await new Promise<void>((resolve) => hanging.set(path, resolve));
    return answer;
  };
  [database, receiver] = await Promise.all([createTestDatabase(), startReceiver({ handler })]);
  const lifted = unsafeAllowed([receiver]);
  await allowTargets(database.pool, lifted);
  const env = { UNSAFE_ALLOWED_TARGETS: lifted.join(","), PUBLIC_URL: "https://hooks.example.com" };
  api = await startTestApi(database, env);
  await writeAnalysesUrl(database.pool, env.PUBLIC_URL);
  dispatcher = startTestDispatcher(database, [receiver], env);
});
afterAll(async () => {
  for (const answer of hanging.values()) answer();
  await dispatcher.stop();
  await api.close();
  await receiver.close();
  await database.drop();
});

const textOf = (id: string, word = `canary-${id}`) => `{"id":"${id}","status":"succeeded","text":"${word}"}`;

async function published(
  id: string,
  path: string | null,
  accountId = api.account.accountId,
): Promise<string> {
  return (await publish(
    database.pool,
    accountId,
    textOf(id),
    path === null ? null : receiver.url(path).href,
  ))!;
}

async function untilTried(deliveryId: string, times = 1): Promise<void> {
  const tries = () => dispatcher.attempts.filter(({ delivery }) => delivery.deliveryId === deliveryId);
  for (let count = 1; tries().length < times; count++) await dispatcher.waitForAttempts(count);
}

async function untilReceived(path: string): Promise<void> {
  for (let count = 1; !receiver.requests.some((request) => request.path === path); count++)
    await receiver.waitForRequests(count);
}

/** Whatever was delivered is forgotten. Attempts end by the dispatcher's clock, which may be ahead of the database. */
const ANY_AGE_MS = -60_000;

const erase = (id: string, options = {}) => api.ask("DELETE", `/v1/analyses/${id}`, options);
const replay = (id: string) => api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`);

describe("an analysis that is erased", () => {
  // A dump has what the tables have.
  test("leaves no word of it in any table or log, and is 410 for whoever knows it", async () => {
    const id = await published("e-1", "/503");
    await untilTried(id);
    expect((await replay(id)).status).toBe(202);
    await untilTried(id, 2);
    await sequenceEvents(database.pool, randomUUID(), 0);
    for (const path of [`deliveries/${id}`, `deliveries/${id}/body`, "events", "deliveries"])
      expect((await api.ask("GET", `/v1/webhooks/${path}`)).status).toBe(200);
    expect(await tablesWith(database.pool, "canary-e-1")).toEqual(["attempts", "bodies"]);
    await database.pool.query("analyze");
    const first = await erase("e-1");
    expect([first.status, first.body]).toEqual([
      200,
      { analysis_id: "e-1", delivery_id: id, in_flight: false, came_from: [] },
    ]);
    expect(await tablesWith(database.pool, "canary-e-1")).toEqual([]);
    for (const path of ["/v1/analyses/e-1", `/v1/webhooks/deliveries/${id}/body`]) {
      const read = await api.ask("GET", path);
      expect([read.status, read.body.code], path).toEqual([410, "analysis_erased"]);
    }
    const replayed = await replay(id);
    expect([replayed.status, replayed.body.code]).toEqual([410, "analysis_erased"]);
    const logged = await api.ask("GET", `/v1/webhooks/deliveries/${id}`);
    const attempt = { status_code: 503, response_excerpt: null, response_headers: null };
    expect(logged.body).toMatchObject({ status: "abandoned", attempts: [attempt, attempt] });
    expect(JSON.stringify(api.log)).not.toContain("canary");
    const sampled = await database.pool.query(
      "select from pg_stats where concat(most_common_vals::text, histogram_bounds::text) like '%canary%'",
    );
    expect(sampled.rowCount).toBe(0);
    expect(await erase("e-1")).toMatchObject({ status: 200, body: first.body });
    expect(await countRows(database.pool, "erasures", { analysis_id: "e-1" })).toBe(1);
  });

  test("keeps its place in the feed, with null in its place and a signature over that", async () => {
    const { accountId, ownKey: key, secret } = await api.newAccount();
    await published("f-1", null, accountId);
    const erased = await published("f-2", null, accountId);
    await published("f-3", null, accountId);
    expect((await erase("f-2", { key })).status).toBe(200);
    await sequenceEvents(database.pool, randomUUID(), 0);
    const { body } = await api.ask("GET", "/v1/webhooks/events", { key });
    const items = body.items as { body: string; signature: string; delivery_id: string }[];
    expect(items.map((item) => JSON.parse(item.body).data?.id ?? null)).toEqual(["f-1", null, "f-3"]);
    const { body: text, signature, delivery_id } = items[1]!;
    expect(delivery_id).toBe(erased);
    verifySignature({ body: Buffer.from(text), header: signature, secrets: [secret] });
  });

  test("makes no more attempts; one under way is logged as interrupted, whatever it comes to", async () => {
    const id = await published("e-2", "/500/hang");
    await untilReceived("/500/hang");
    const { status, body } = await erase("e-2");
    expect([status, body.in_flight]).toEqual([200, true]);
    hanging.get("/500/hang")!();
    await untilTried(id);
    expect(await deliveryRow(database.pool, id)).toMatchObject({
      status: "abandoned",
      reason: "analysis_erased",
      attempts_count: 1,
    });
    expect(await attemptRows(database.pool, id)).toMatchObject([
      { outcome: "interrupted", error_code: "interrupted" },
    ]);
    expect(await tablesWith(database.pool, "canary-e-2")).toEqual([]);
    expect((await replay(id)).body.code).toBe("analysis_erased");
  });

  test("ends what waits for its next attempt, and is not among what a bulk replay takes", async () => {
    const id = await published("e-3", "/503");
    await untilTried(id);
    await erase("e-3");
    expect(await deliveryRow(database.pool, id)).toMatchObject({
      status: "abandoned",
      reason: "analysis_erased",
    });
    expect(await countRows(database.pool, "open_deliveries", { delivery_id: id })).toBe(0);
    const read = await api.ask("GET", `/v1/webhooks/deliveries/${id}`);
    expect(read.body.explanation).toMatch(/^The analysis was erased/);
    const body = { filter: { analysis_id: "e-3" }, dry_run: true };
    expect((await api.ask("POST", "/v1/webhooks/replays", { body })).body.matched).toBe(0);
  });

  test("is known whatever is published under its id, and nothing of that is stored", async () => {
    const id = await published("e-4", "/200");
    await untilTried(id);
    await erase("e-4");
    const again = textOf("e-4", "canary-again");
    for (const url of [null, receiver.url("/other").href])
      expect(await publish(database.pool, api.account.accountId, again, url)).toBe(id);
    const asked = await api.ask("POST", "/v1/analyses", { body: { analysis: JSON.parse(again) } });
    expect([asked.status, asked.body.delivery_id]).toEqual([202, id]);
    expect(await tablesWith(database.pool, "canary-again")).toEqual([]);
  });

  test("stays erased after a restore to before it was published", async () => {
    const { accountId } = await api.newAccount();
    expect(await inTransaction(database.pool, (tx) => knowAsErased(tx, accountId, "e-6"))).toBe(true);
    const id = await published("e-6", null, accountId);
    expect(await tablesWith(database.pool, "canary-e-6")).toEqual([]);
    expect(await published("e-6", null, accountId)).toBe(id);
    const { ownKey: key } = await api.newAccount();
    const again = await erase("e-6", { key: await api.newKey(accountId, ["analyses:erase"]) });
    expect(again.body, "that delivery never was").toEqual({
      analysis_id: "e-6",
      delivery_id: null,
      in_flight: false,
      came_from: [],
    });
    expect((await erase("e-6", { key })).status).toBe(404);
    expect(await inTransaction(database.pool, (tx) => knowAsErased(tx, randomUUID(), "e-6"))).toBe(false);
  });

  test("is still 410 for who replays it once the day of its text is gone", async () => {
    const id = await published("e-7", "/200");
    await untilTried(id);
    await erase("e-7");
    expect((await replay(id)).body.code).toBe("analysis_erased");
    await deleteRows(database.pool, "bodies", { delivery_id: id });
    expect((await replay(id)).body.code).toBe("analysis_erased");
  });

  test("says in which cells the account was before, which may have it still", async () => {
    const { accountId, ownKey: key } = await api.newAccount();
    await changeRows(database.pool, "accounts", { id: accountId }, { came_from: ["c1", "c2"] });
    await published("e-8", null, accountId);
    expect((await erase("e-8", { key })).body).toMatchObject({
      analysis_id: "e-8",
      came_from: ["c1", "c2"],
    });
  });

  test("is locked in the log's order with what goes with it, as a bulk replay locks them", async () => {
    const { accountId } = await api.newAccount();
    const ids = [await published("older", null, accountId), await published("newer", null, accountId)];
    const lock = (id?: string) => `select from sealpost.deliveries where id = '${id}' for update`;
    const replaying = await begin(database.pool, lock(ids[0]));
    const erasing = inTransaction(database.pool, (tx) =>
      eraseAnalysis(tx, async () => ["older"], accountId, "newer", { userId: null }),
    );
    await untilSomebodyWaits(database.pool);
    const { rowCount } = await replaying.client.query(`${lock(ids[1])} skip locked`);
    await replaying.commit();
    expect(rowCount).toBe(1);
    expect(await erasing).toMatchObject({ deliveryId: ids[1] });
  });

  test("has to be there, and its key's scope", async () => {
    expect((await erase("unknown")).status).toBe(404);
    const { ownKey: key } = await api.newAccount();
    expect((await erase("e-1", { key })).status).toBe(404);
    const reader = await api.newKey(api.account.accountId, ["analyses:read"]);
    expect((await erase("e-1", { key: reader })).status).toBe(403);
  });
});

describe("an endpoint with options", () => {
  const set = (key: string, options: object, path = "/200") =>
    api.ask("PUT", "/v1/webhooks/endpoint", { key, body: { url: receiver.url(path).href, ...options } });
  const received = (path: string) =>
    receiver.requests.filter((request) => request.path === path).map(({ body }) => body.toString());

  test("of references gets them, the same ones again when they are replayed", async () => {
    const { accountId, ownKey: key } = await api.newAccount();
    expect((await set(key, { payload: "reference" }, "/503/ref")).body.payload).toBe("reference");
    const ids = [await published("r-1", null, accountId), await published("r-2", "/200/own", accountId)];
    for (const id of ids) await untilTried(id);
    expect((await set(key, { payload: "full" }, "/200/ref")).body.payload).toBe("full");
    expect((await api.ask("POST", `/v1/webhooks/deliveries/${ids[0]}/replay`, { key })).status).toBe(202);
    await untilReceived("/200/ref");
    const [first] = received("/503/ref");
    expect(JSON.parse(first!).data).toEqual({
      id: "r-1",
      status: "succeeded",
      url: "https://hooks.example.com/v1/analyses/r-1",
    });
    expect(received("/200/ref")).toEqual([first]);
    expect((await api.ask("GET", `/v1/webhooks/deliveries/${ids[0]}/body`, { key })).bytes.toString()).toBe(
      first,
    );
    expect((await api.ask("GET", "/v1/analyses/r-1", { key })).bytes.toString()).toBe(textOf("r-1"));
    expect(JSON.parse(received("/200/own")[0]!).data).toEqual(JSON.parse(textOf("r-2")));
  });

  test("that forgets has nothing left some time after the delivery, but what was not delivered", async () => {
    const { accountId, ownKey: key } = await api.newAccount();
    await set(key, { forget_after_success: true });
    const ids = [await published("g-1", null, accountId), await published("g-2", "/200", accountId)];
    // An attempt goes to the endpoint of its moment.
    for (const id of ids) await untilTried(id);
    await set(key, {}, "/503");
    ids.push(await published("g-3", null, accountId));
    await untilTried(ids[2]!);
    const forget = (afterMs: number) => forgetDelivered(database.pool, async () => [], afterMs, idsOfRuns);
    expect(await forget(3_600_000)).toBe(2);
    // They are looked at again when it is time.
    expect(await forget(ANY_AGE_MS)).toBe(0);
    await changeRows(database.pool, "forgetting", {}, { look_at: new Date(0) });
    expect(await forget(ANY_AGE_MS)).toBe(2);
    expect(await tablesWith(database.pool, "canary-g-1")).toEqual([]);
    expect((await api.ask("GET", "/v1/analyses/g-1", { key })).body.code).toBe("analysis_erased");
    for (const id of ["g-2", "g-3"])
      expect((await api.ask("GET", `/v1/analyses/${id}`, { key })).status).toBe(200);
    expect(await countRows(database.pool, "forgetting", { account_id: accountId })).toBe(1);
  });

  /** Delivered just now, in the order of these accounts, and looked at in that. */
  async function delivered(word: string, accounts: readonly TestAccount[]): Promise<void> {
    for (const [n, { accountId: account_id, ownKey: key }] of accounts.entries()) {
      await set(key, { forget_after_success: true });
      await untilTried(await published(`${word}-${n}`, null, account_id));
      await changeRows(database.pool, "forgetting", { account_id }, { look_at: new Date(n) });
    }
  }

  test("forgets nothing while its account is moved, even one that closes meanwhile, and goes on after", async () => {
    const accounts = [await api.newAccount(), await api.newAccount()];
    await delivered("m", accounts);
    const { accountId: account_id } = accounts[1]!;
    // It closes once both were chosen.
    const closing = async () => {
      await changeRows(database.pool, "accounts", { id: account_id }, { moved_to: "c2" });
      await insertRow(database.pool, "moves", { account_id, id: randomUUID(), direction: "out" });
    };
    const forget = async (meanwhile: () => Promise<unknown> = async () => undefined) => {
      const idsOfRuns = () => meanwhile().then(() => new Set<string>());
      await forgetDelivered(database.pool, async () => [], ANY_AGE_MS, idsOfRuns);
      await changeRows(database.pool, "forgetting", { account_id }, { look_at: new Date(0) });
      return await tablesWith(database.pool, "canary-m-1");
    };
    expect(await forget(closing)).toEqual(["attempts", "bodies"]);
    expect(await tablesWith(database.pool, "canary-m-0")).toEqual([]);
    expect(await forget()).toEqual(["attempts", "bodies"]);
    await changeRows(database.pool, "moves", { account_id }, { step: "done", ended_at: new Date() });
    expect(await forget()).toEqual([]);
  });

  test("forgets as much for each account as for one with thousands, and many in one transaction", async () => {
    const greedy = await api.newAccount();
    const rest = await api.newAccount();
    const ids = Array.from({ length: 20 }, (_, n) => `q-${n}`);
    await set(rest.ownKey, { forget_after_success: true });
    const deliveries: string[] = [];
    for (const id of ids) deliveries.push(await published(id, null, rest.accountId));
    for (const id of deliveries) await untilTried(id);
    const account_id = rest.accountId;
    await changeRows(database.pool, "forgetting", { account_id }, { look_at: new Date(1_000) });
    await database.pool.query(
      `insert into sealpost.forgetting (delivery_id, account_id, look_at)
       select gen_random_uuid(), $1, '1970-01-01' from generate_series(1, 1000)`,
      [greedy.accountId],
    );
    await forgetDelivered(database.pool, async () => [], ANY_AGE_MS, idsOfRuns);
    const { rows } = await database.pool.query<{ erased: number; transactions: number }>(
      `select count(*)::integer as erased, count(distinct xmin::text)::integer as transactions
       from sealpost.bodies where delivery_id = any ($1) and analysis::text = 'null'`,
      [deliveries],
    );
    expect(rows).toEqual([{ erased: ids.length, transactions: 1 }]);
    await deleteRows(database.pool, "forgetting", { account_id: greedy.accountId });
  });

  test("asks no run about what is of none, whatever its id looks like", async () => {
    const { accountId, ownKey: key } = await api.newAccount();
    await set(key, { forget_after_success: true });
    await untilTried(await published(randomUUID(), null, accountId));
    const asked = async () => Promise.reject(new Error("it was asked"));
    expect(await forgetDelivered(database.pool, asked, ANY_AGE_MS, idsOfRuns)).toBeGreaterThan(0);
    expect(await countRows(database.pool, "forgetting", { account_id: accountId })).toBe(0);
  });

  test("forgets the others where something is wrong with one", async () => {
    const accounts = [await api.newAccount(), await api.newAccount()];
    await delivered("w", accounts);
    const failing = async (_: unknown, accountId: string) => {
      if (accountId === accounts[0]!.accountId) throw new Error("its run is broken");
      return [];
    };
    const all = async (_: unknown, those: readonly { readonly analysisId: string }[]) =>
      new Set(those.map(({ analysisId }) => analysisId));
    await expect(forgetDelivered(database.pool, failing, ANY_AGE_MS, all)).rejects.toThrow("broken");
    expect(await tablesWith(database.pool, "canary-w-1")).toEqual([]);
    expect(await tablesWith(database.pool, "canary-w-0")).toEqual(["attempts", "bodies"]);
    await deleteRows(database.pool, "forgetting", { account_id: accounts[0]!.accountId });
  });

  test("has one of them, and keeps what is not given", async () => {
    const { ownKey: key } = await api.newAccount();
    expect((await set(key, { payload: "reference" })).status).toBe(200);
    expect((await set(key, {})).body).toMatchObject({ payload: "reference", forget_after_success: false });
    const both = await set(key, { forget_after_success: true });
    expect([both.status, both.body.code]).toEqual([409, "endpoint_options_conflict"]);
    const unknown = await set(key, { payload: "half" });
    expect(unknown).toMatchObject({ status: 400, body: { errors: [{ path: "body.payload" }] } });
    expect((await set(key, { payload: "full", forget_after_success: true })).status).toBe(200);
  });
});
