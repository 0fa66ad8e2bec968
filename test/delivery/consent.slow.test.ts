// Receivers that have proven nothing get few attempts, and everything once they have answered a 2xx.
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { endTurn, forgetReceivers, takeTurn } from "../../src/delivery/receivers-sql.ts";
import { findLoggedDelivery } from "../../src/log/deliveries-sql.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher } from "../support/dispatching.ts";
import {
  allowTargets,
  changeRows,
  createTestAccount,
  insertAccount,
  publishMany as publishAll,
  rowsOf,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { type Receiver, type ScriptedAnswer, startReceiver } from "../support/receiver.ts";
import { patience } from "../support/time-limits.ts";

const database = await openDatabase();
const CONSENT = { TARGET_CONSENT: "success" };
const NOT_FOUND = { status: 404 };

let answer: ScriptedAnswer;
let receiver: Receiver;
const dispatchers: TestDispatcher[] = [];

beforeEach(async () => {
  answer = NOT_FOUND;
  receiver = await startReceiver({ handler: () => answer });
});
afterEach(async () => {
  for (const dispatcher of dispatchers.splice(0)) await dispatcher.stop();
  await receiver.close();
});

const start = (env: Record<string, string> = {}) => {
  const dispatcher = startTestDispatcher(database, [receiver], { ...CONSENT, ...env });
  dispatchers.push(dispatcher);
  return dispatcher;
};
let published = 0;
const publishMany = (accountId: string, count: number, url: string | null = null) => {
  const texts = Array.from({ length: count }, () => `{"id":"c-${published++}","status":"succeeded"}`);
  const each = <T>(value: T) => texts.map(() => value);
  return publishAll(database.pool, each(accountId), texts, each(url));
};
const posted = ({ attempts }: TestDispatcher, outcome?: string) =>
  attempts.filter(
    ({ delivered: { recording } }) =>
      recording.attempt?.targetUrl.includes(`:${receiver.port}/`) &&
      (outcome ?? recording.attempt.outcome) === recording.attempt.outcome,
  );
async function untilPosted(dispatcher: TestDispatcher, count: number, outcome?: string): Promise<void> {
  while (posted(dispatcher, outcome).length < count)
    await dispatcher.waitForAttempts(dispatcher.attempts.length + 1, 30_000);
}
/** Others' are of tests before. */
async function untilTried(dispatcher: TestDispatcher, accountId: string, count: number): Promise<void> {
  while (dispatcher.attempts.filter(({ delivery }) => delivery.accountId === accountId).length < count)
    await dispatcher.waitForAttempts(dispatcher.attempts.length + 1);
}
/** Milliseconds between one request and the next. */
const gaps = () =>
  receiver.requests.slice(1).map(({ receivedAtMs }, n) => receivedAtMs - receiver.requests[n]!.receivedAtMs);

describe("a receiver that has answered no 2xx", () => {
  it("gets one attempt at a time, 6.5 s apart, in order, and everything after its first 2xx", async () => {
    // Two of them, as each has its own lanes.
    start();
    start();
    const { accountId } = await createTestAccount(database, receiver.url("/in").href);
    const ids = await publishMany(accountId, 300);
    await receiver.waitForRequests(2, 20_000);
    answer = {};
    await receiver.waitForRequests(300, 20_000);
    expect(gaps()[0]).toBeGreaterThan(6_000);
    expect(gaps()[1], "and the second was a 404").toBeGreaterThan(6_000);
    // The first one's retry is due about when the third has its turn.
    const first = new Set(receiver.requests.slice(0, 3).map(({ body }) => JSON.parse(body.toString()).id));
    expect([...first], "the oldest first").toEqual(ids.slice(0, first.size));
    expect(Math.max(...gaps().slice(3, 298)), "all others, of both, together").toBeLessThan(patience(3_000));
  });

  it("uses up none of a run's window while it waits", async () => {
    const { accountId } = await createTestAccount(database, receiver.url("/in").href);
    const [first, second, third] = await publishMany(accountId, 3);
    const dispatcher = start({ RETRY_WINDOW_SECONDS: "2" });
    await untilPosted(dispatcher, 3);
    const log = await Promise.all(
      [first!, second!].map((id) => findLoggedDelivery(database.pool, wholeAccount(accountId), id)),
    );
    expect(
      log.map((delivery) => delivery?.waits_for_proof),
      "and the log says so",
    ).toContain(true);
    answer = {};
    await untilPosted(dispatcher, 3, "succeeded");
    for (const id of [first!, second!, third!]) {
      expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "succeeded" });
      expect((await attemptRows(database.pool, id)).length).toBeGreaterThan(1);
    }
  });

  it("is told apart by account and by origin", async () => {
    const dispatcher = start();
    await allowTargets(database.pool, [`*.localhost:${receiver.port}`]);
    const one = await createTestAccount(database, receiver.url("/in").href);
    const other = await createTestAccount(database, receiver.url("/in").href);
    answer = {};
    await publishMany(one.accountId, 1);
    await untilPosted(dispatcher, 1);
    answer = NOT_FOUND;
    await publishMany(one.accountId, 20);
    await publishMany(other.accountId, 20);
    await publishMany(one.accountId, 20, receiver.url("/in", "other.localhost").href);
    await untilPosted(dispatcher, 1 + 20 + 2);
    const rows = await rowsOf(database.pool, "receivers");
    const ofThese = rows.filter(({ account_id }) => [one.accountId, other.accountId].includes(account_id));
    expect(ofThese).toHaveLength(3);
    const proven = ofThese.filter(({ proven_at }) => proven_at !== null);
    expect(proven).toMatchObject([{ account_id: one.accountId, origin: receiver.url().origin }]);
    const ofOther = posted(dispatcher).filter(({ delivery }) => delivery.accountId === other.accountId);
    expect(ofOther).toHaveLength(1);
  });
});

describe("a receiver that answers 410 with webhook-refuse: 1", () => {
  it("gets nothing more from the account at that URL, until that is lifted", async () => {
    const dispatcher = start({ TARGET_CONSENT: "" });
    const refusing = await createTestAccount(database, receiver.url("/in").href);
    const other = await createTestAccount(database, receiver.url("/in").href);
    const reasonOf = async (id: string | undefined) => (await deliveryRow(database.pool, id!)).reason;
    answer = { status: 410 };
    const [plain] = await publishMany(refusing.accountId, 1);
    await untilTried(dispatcher, refusing.accountId, 1);
    expect(await reasonOf(plain), "a 410 alone is tried again").toBeNull();
    answer = { status: 410, headers: { "webhook-refuse": "1" } };
    const [refused] = await publishMany(refusing.accountId, 1);
    await untilTried(dispatcher, refusing.accountId, 2);
    const [later] = await publishMany(refusing.accountId, 1);
    await untilTried(dispatcher, refusing.accountId, 3);
    expect(await Promise.all([refused, later].map(reasonOf))).toEqual(Array(2).fill("refused_by_receiver"));
    expect(await deliveryRow(database.pool, later!)).toMatchObject({ attempts_count: 0 });
    answer = {};
    await allowTargets(database.pool, [`localhost:${receiver.port}`]);
    await publishMany(other.accountId, 1);
    await publishMany(refusing.accountId, 1, receiver.url("/else").href);
    await receiver.waitForRequests(4);
    await changeRows(
      database.pool,
      "refusals",
      { account_id: refusing.accountId },
      { lifted_at: new Date() },
    );
    await publishMany(refusing.accountId, 1);
    await receiver.waitForRequests(5);
  });
});

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
