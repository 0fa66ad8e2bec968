// Receivers that have proven nothing get few attempts, and everything once they have answered a 2xx.
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { wholeAccount } from "../../src/base/model/reader.ts";
import { sealHeaders } from "../../src/delivery/endpoint-headers.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { findLoggedDelivery } from "../../src/log/deliveries-sql.ts";
import { readChallenge, SIGNATURE_HEADER, verifyWebhook } from "../../src/signing/index.ts";
import { attemptRows, deliveryRow } from "../support/delivery-rows.ts";
import { startTestDispatcher, type TestDispatcher, targetsEnv } from "../support/dispatching.ts";
import {
  allowTargets,
  changeRows,
  createTestAccount,
  deleteRows,
  forgetOpen,
  insertRow,
  publishMany as publishAll,
  rowsOf,
  SECRETS_KEY,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import {
  type ReceivedRequest,
  type Receiver,
  type ReceiverHandler,
  type ScriptedAnswer,
  startReceiver,
} from "../support/receiver.ts";
import { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const database = await openDatabase();
const CONSENT = { TARGET_CONSENT: "success" };
const NOT_FOUND = { status: 404 };

let answer: ScriptedAnswer;
let handler: ReceiverHandler;
let receiver: Receiver;
const dispatchers: TestDispatcher[] = [];

beforeEach(async () => {
  answer = NOT_FOUND;
  handler = () => answer;
  receiver = await startReceiver({ handler: (...request) => handler(...request) });
});
afterEach(async () => {
  await stopAll();
  await receiver.close();
});

async function stopAll(): Promise<void> {
  for (const dispatcher of dispatchers.splice(0)) await dispatcher.stop();
}

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
  it("gets one attempt at a time, 6.7 s apart, in order, and everything after its first 2xx", async () => {
    start();
    const { accountId } = await createTestAccount(database, receiver.url("/in").href);
    const ids = await publishMany(accountId, 300);
    await receiver.waitForRequests(2, 20_000);
    // Two of them, each with lanes and an order of its own.
    start();
    answer = {};
    await receiver.waitForRequests(300, 20_000);
    expect(gaps()[0]).toBeGreaterThan(6_000);
    expect(gaps()[1], "and the second was a 404").toBeGreaterThan(6_000);
    const first = receiver.requests.slice(0, 2).map(({ body }) => JSON.parse(body.toString()).id);
    expect(first, "the oldest first").toEqual(ids.slice(0, 2));
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

  it("uses up none of it either where the endpoint goes on at one that was proven before", async () => {
    const { accountId } = await createTestAccount(database, receiver.url("/in").href);
    const { origin, href } = receiver.url("/in", "other.localhost");
    await allowTargets(database.pool, [`*.localhost:${receiver.port}`, `localhost:${receiver.port}`]);
    handler = ({ headers }) => (headers.host!.startsWith("other.") ? {} : NOT_FOUND);
    const [proven_since, proven_at] = [new Date(Date.now() - 86_400_000), new Date()];
    await insertRow(database.pool, "receivers", { account_id: accountId, origin, proven_at, proven_since });
    const dispatcher = start({ RETRY_WINDOW_SECONDS: "1" });
    const [first, second] = await publishMany(accountId, 2);
    await untilPosted(dispatcher, 2);
    await setEndpoint(database.pool, accountId, href);
    for (const id of [second!, first!]) {
      const ended = () =>
        dispatcher.attempts.some(
          ({ delivered: { recording } }) =>
            recording.deliveryId === id && ["succeeded", "abandoned"].includes(recording.next.status),
        );
      while (!ended()) await dispatcher.waitForAttempts(dispatcher.attempts.length + 1, 30_000);
      expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "succeeded", reason: null });
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
    expect(ofThese.map(({ busy_until }) => busy_until)).toEqual([null, null, null]);
    const proven = ofThese.filter(({ proven_at }) => proven_at !== null);
    expect(proven).toMatchObject([{ account_id: one.accountId, origin: receiver.url().origin }]);
    const ofOther = posted(dispatcher).filter(({ delivery }) => delivery.accountId === other.accountId);
    expect(ofOther).toHaveLength(1);
  });

  it.each([
    ["in normal form", "https://localhost:"],
    ["with a full-width letter", "https://ｌocalhost:"],
    ["percent-encoded", "https://%6Cocalhost:"],
    ["with a zero before the port", "https://localhost:0"],
  ])("stays proven, by a 2xx a month, when its URL is spelled %s", async (_name, start_) => {
    const { accountId: account_id } = await createTestAccount(database, `${start_}${receiver.port}/in`);
    const { origin } = receiver.url();
    const [proven_at, now] = [new Date(Date.now() - 29 * 86_400_000), Date.now()];
    await insertRow(database.pool, "receivers", { account_id, origin, proven_at, proven_since: proven_at });
    answer = {};
    const dispatcher = start();
    for (let n = 1; n <= 2; n++) {
      await publishMany(account_id, 1);
      await untilTried(dispatcher, account_id, n);
    }
    const own = dispatcher.attempts.filter(({ delivery }) => delivery.accountId === account_id);
    expect(own.map(({ delivered: { recording, turn } }) => [recording.attempt?.outcome, turn])).toEqual(
      // With a turn it would have a connection of its own.
      Array(2).fill(["succeeded", null]),
    );
    for (const row of await rowsOf(database.pool, "receivers", { account_id })) {
      expect(row.proven_since).toEqual(proven_at);
      expect((row.proven_at as Date).getTime()).toBeGreaterThan(now - 60_000);
    }
    const waited = own.map(({ delivered }) => delivered.recording.waitedMs);
    expect(waited, "nothing has waited for consent").toEqual([0, 0]);
  });
});

describe("a receiver that has to answer a challenge", () => {
  const CHALLENGE = { TARGET_CONSENT: "challenge" };
  const isChallenge = ({ body }: ReceivedRequest) => body.includes('"type":"webhook.challenge"');
  let secret = "";
  // Nobody else waits at that address.
  beforeEach(async () => {
    await forgetOpen(database.pool);
    for (const table of ["receivers", "receiver_addresses"]) await deleteRows(database.pool, table);
    await allowTargets(database.pool, [`*.localhost:${receiver.port}`, `localhost:${receiver.port}`]);
  });
  /** As our library does it. */
  const library: ReceiverHandler = ({ headers, body }) => {
    const input = { rawBody: body, header: headers[SIGNATURE_HEADER], secret };
    const text = readChallenge(input);
    if (text !== null) return { body: text };
    return verifyWebhook(input) && { status: 204 };
  };
  async function newAccount(url: URL): Promise<string> {
    const account = await createTestAccount(database, url.href);
    secret = account.secret;
    return account.accountId;
  }

  it("gets its deliveries once it has, the first with its first attempt", async () => {
    handler = library;
    const accountId = await newAccount(receiver.url("/in"));
    const ids = await publishMany(accountId, 20);
    start(CHALLENGE);
    const [challenge, first, ...others] = await receiver.waitForRequests(21, 5_000);
    expect(challenge!.body.toString()).toMatch(
      /^\{"type":"webhook.challenge","challenge":"[0-9a-f-]{36}"\}$/,
    );
    const namesOf = ({ headers }: ReceivedRequest) => Object.keys(headers);
    expect(namesOf(challenge!)).toEqual(namesOf(first!));
    expect(challenge!.headers["user-agent"]).toBe(first!.headers["user-agent"]);
    expect(JSON.parse(first!.body.toString()).id).toBe(ids[0]);
    expect(others.filter(isChallenge)).toEqual([]);
    await publishMany(accountId, 1);
    await receiver.waitForRequests(22);
    await stopAll();
    for (const id of ids) expect(await attemptRows(database.pool, id)).toMatchObject([{ number: 1 }]);
  });

  it("is asked once, however its URL is spelled", async () => {
    handler = library;
    const accountId = await newAccount(receiver.url("/in"));
    await publishMany(accountId, 10, receiver.url("/in").href.replace("localhost", "LOCALHOST"));
    start(CHALLENGE);
    const requests = await receiver.waitForRequests(11, 10_000);
    expect(requests.map(isChallenge)).toEqual([true, ...Array(10).fill(false)]);
  });

  it.each<[what: string, answer: ScriptedAnswer | "echo", recorded: object]>([
    ["200 and something else", { body: "ok" }, { status_code: 200 }],
    ["what it was sent", "echo", { status_code: 200 }],
    ["204", { status: 204, body: "" }, { status_code: 204 }],
    ["404", { status: 404 }, { status_code: 404 }],
    [
      "nothing",
      { hangUp: true },
      { outcome: "unreachable", error_code: "connection_closed", status_code: null },
    ],
  ])("has used up an attempt if it answers %s, and gets nothing else", async (_, given, recorded) => {
    handler = ({ body }) => (given === "echo" ? { body } : given);
    const dispatcher = start(CHALLENGE);
    const accountId = await newAccount(receiver.url("/in"));
    const [id] = await publishMany(accountId, 3);
    await untilPosted(dispatcher, 2);
    expect(receiver.requests.every(isChallenge)).toBe(true);
    expect(gaps()[0]).toBeGreaterThan(6_000);
    const refused = { outcome: "rejected", error_code: "target_not_confirmed", number: 1, ...recorded };
    expect(await attemptRows(database.pool, id!)).toMatchObject([refused]);
    expect(await deliveryRow(database.pool, id!)).toMatchObject({ status: "failed", attempts_count: 1 });
  });

  it("has confirmed nothing if it answers what it was sent, and secret headers hide what shows that", async () => {
    handler = ({ body }) => ({ body });
    const dispatcher = start(CHALLENGE);
    const { href } = receiver.url("/in");
    const accountId = await newAccount(receiver.url("/in"));
    const headers = [{ name: "x-gate", value: "Bearer type", secret: true }];
    const sealedHeaders = sealHeaders(headers, href, accountId, SECRETS_KEY);
    await setEndpoint(database.pool, accountId, href, { sealedHeaders });
    const [id] = await publishMany(accountId, 1);
    await untilPosted(dispatcher, 1);
    expect(receiver.requests.every(isChallenge)).toBe(true);
    expect(await attemptRows(database.pool, id!)).toMatchObject([{ error_code: "target_not_confirmed" }]);
  });

  it("refuses by 410 as ever, however its URL is spelled", async () => {
    handler = () => ({ status: 410, headers: { "webhook-refuse": "1" } });
    const dispatcher = start(CHALLENGE);
    const accountId = await newAccount(receiver.url("/in"));
    for (const [n, path] of ["/in", "/in?", "/%69n"].entries()) {
      const [id = ""] = await publishMany(accountId, 1, receiver.url(path).href);
      await dispatcher.waitForAttempts(n + 1);
      expect(await deliveryRow(database.pool, id), path).toMatchObject({ reason: "refused_by_receiver" });
    }
    expect(receiver.requests.map(isChallenge)).toEqual([true]);
  });

  it("is not asked where it was proven by a 2xx before, and a 2xx proves nobody anew", async () => {
    handler = () => ({});
    const before = start();
    const accountId = await newAccount(receiver.url("/in"));
    await publishMany(accountId, 1);
    await untilPosted(before, 1);
    await stopAll();
    start(CHALLENGE);
    await publishMany(accountId, 1);
    await publishMany(accountId, 1, receiver.url("/in", "other.localhost").href);
    await receiver.waitForRequests(3);
    const hostOf = ({ headers }: ReceivedRequest) => headers.host!.split(".")[0];
    expect(receiver.requests.filter(isChallenge).map(hostOf)).toEqual(["other"]);
  });

  it.each(["before it has the answer", "when it has it"])(
    "loses nothing when a dispatcher dies %s",
    async (moment) => {
      const env = {
        DATABASE_URL: database.url,
        SECRETS_KEY: SECRETS_KEY.toString("base64"),
        ATTEMPT_DEADLINE_MS: "1000",
        AREAS: "webhooks",
        ...targetsEnv([receiver]),
        ...CHALLENGE,
      };
      const process = new SealpostProcess(["dispatch"], env);
      handler = (request, response) => {
        if (moment.startsWith("before")) process.kill();
        else response.on("finish", () => process.kill());
        return library(request, response);
      };
      const accountId = await newAccount(receiver.url("/in"));
      const [id] = await publishMany(accountId, 1);
      await receiver.waitForRequests(1, 30_000).catch((error) => {
        process.kill();
        throw new Error(process.output(), { cause: error });
      });
      await process.ended;
      const dispatcher = start(CHALLENGE);
      await untilPosted(dispatcher, 1, "succeeded");
      expect(isChallenge(receiver.requests[0]!)).toBe(true);
      expect(receiver.requests.filter((request) => !isChallenge(request))).not.toEqual([]);
      expect(await deliveryRow(database.pool, id!)).toMatchObject({ status: "succeeded" });
    },
  );
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

  it("gets nothing more there however the account spells it", async () => {
    const dispatcher = start({ TARGET_CONSENT: "" });
    await allowTargets(database.pool, [`localhost:${receiver.port}`]);
    const { accountId } = await createTestAccount(database);
    const { href } = receiver.url("/in");
    const spellings = [
      href.replace("localhost", "LocalHost"),
      href.replace("https", "HTTPS"),
      href.replace("/in", "/./in"),
      href.replace("localhost", "l%6fcalhost"),
    ];
    answer = { status: 410, headers: { "webhook-refuse": "1" } };
    const [refused] = await publishMany(accountId, 1, spellings[0]);
    await untilTried(dispatcher, accountId, 1);
    const ids = [refused];
    for (const url of [href, ...spellings]) ids.push(...(await publishMany(accountId, 1, url)));
    await untilTried(dispatcher, accountId, ids.length);
    const rows = await Promise.all(ids.map((id) => deliveryRow(database.pool, id!)));
    expect(rows.map(({ reason }) => reason)).toEqual(ids.map(() => "refused_by_receiver"));
    expect(receiver.requests).toHaveLength(1);
  });
});
