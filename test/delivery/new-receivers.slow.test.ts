// Receivers that have proven nothing yet: how they share turns and look-ups, and what has waited for the first 2xx.
import { Pool } from "pg";
import { expect, it } from "vitest";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { createTurn, receiverTurns } from "../../src/delivery/receiver-turns.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import {
  allowTargets,
  begin,
  changeRows,
  createTestAccount,
  deleteRows,
  findWaiting,
  insertAccount,
  insertRow,
  lockTable,
  publishMany,
  rowsOf,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { startNameServer } from "../support/name-server.ts";
import { openDatabase } from "../support/open.ts";
import { forwardFrom } from "../support/ports.ts";
import { type ReceivedRequest, startReceiver } from "../support/receiver.ts";
import { patience } from "../support/time-limits.ts";

const database = await openDatabase();

it.each(["before the dispatcher starts", "by somebody else while it runs"])(
  "what was put off for a receiver is delivered in all its lanes at once when it is proven %s",
  async (when) => {
    const receiver = await startReceiver();
    await allowTargets(database.pool, [`localhost:${receiver.port}`]);
    const { accountId } = await createTestAccount(database, receiver.url("/in").href);
    const publish = (webhookUrl: string | null) =>
      publishMany(
        database.pool,
        Array.from({ length: 25 }, () => accountId),
        Array.from({ length: 25 }, (_, n) => `{"id":"${webhookUrl === null}-${n}","status":"succeeded"}`),
        Array.from({ length: 25 }, () => webhookUrl),
      );
    await publish(null);
    await publish(receiver.url("/other").href);
    // As the promoter does with what waits for consent.
    await deleteRows(database.pool, "graphile_worker._private_jobs");
    const wake_at = new Date(Date.now() + 240_000);
    await changeRows(database.pool, "open_deliveries", { account_id: accountId }, { wake_at });
    const prove = async () => {
      const [proven_at, proven_since] = [new Date(), new Date()];
      const { origin } = receiver.url();
      await insertRow(database.pool, "receivers", { account_id: accountId, origin, proven_at, proven_since });
    };
    if (when.startsWith("before")) await prove();
    const leader = () => rowsOf(database.pool, "leader");
    const before = await leader();
    const dispatcher = startTestDispatcher(database, [receiver], { TARGET_CONSENT: "success" });
    if (!when.startsWith("before")) {
      await expect.poll(leader, { timeout: 20_000 }).not.toEqual(before);
      await prove();
    }
    await receiver.waitForRequests(50, 20_000);
    await dispatcher.stop();
    await receiver.close();
  },
);

it("a receiver whose name leads nowhere takes no turn, and the next look-up waits for none", async () => {
  const names = await startNameServer();
  names.script("private.example.com", [["10.1.2.3"]]);
  const env = { TARGET_CONSENT: "success", TARGET_DNS_SERVERS: names.address };
  const receiver = await startReceiver();
  const dispatcher = startTestDispatcher(database, [receiver], env);
  for (const host of ["unknown.example.com", "private.example.com"]) {
    const { accountId } = await createTestAccount(database, `https://${host}/in`);
    const each = Array.from({ length: 5 }, (_, n) => `{"id":"n-${n}","status":"succeeded"}`);
    const before = dispatcher.attempts.length;
    await publishMany(
      database.pool,
      each.map(() => accountId),
      each,
      each.map(() => null),
    );
    // With rests of 6.7 s the fourth came after 20.
    await dispatcher.waitForAttempts(before + 5, 15_000);
    expect(await rowsOf(database.pool, "receivers", { account_id: accountId })).toEqual([]);
  }
  await dispatcher.stop();
  await Promise.all([names.close(), receiver.close()]);
});

it("an account has four asks for turns at a time, and the others wait for a second at most", async () => {
  const accountId = await insertAccount(database.pool);
  const turns = receiverTurns(database.pool, database.pool);
  const takeOf = (numbers: readonly number[]) =>
    numbers.map(async (n) => {
      const origin = `https://n${n}.example.com`;
      const asked = { accountId, origin, address: `192.0.2.${n}`, isFirst: true, isFurther: false };
      return await turns.take({ ...asked, leaseMs: 20_000 });
    });
  const lock = await lockTable(database.pool, "receivers");
  const [first, late] = [takeOf([0, 1, 2, 3]), takeOf([4, 5, 6])];
  await untilSomebodyWaits(database.pool, 4);
  // "Not asked" is no answer that says where a name leads.
  expect(await Promise.all(late)).toEqual(Array(3).fill({ isProven: false, waitMs: 1_000, isAsked: false }));
  const next = takeOf([4, 5, 6, 7, 8, 9]);
  expect(await findWaiting(database.pool)).toHaveLength(4);
  await lock.commit();
  const answers = await Promise.all([...first, ...next]);
  expect(answers).toEqual(Array(10).fill({ isProven: false, waitMs: null }));
});

it("an account's many new receivers get their first webhooks as fast as without consent", async () => {
  const many = 200;
  const names = await startNameServer();
  const receiver = await startReceiver({ names: ["*.many.test"], records: false });
  // Each has an address of its own, which is its second: the first accepts no connection.
  const addresses = await Promise.all(
    Array.from({ length: many }, async (_, n) => {
      names.script(`r${n}.many.test`, [[`127.2.0.${n + 1}`, `127.1.0.${n + 1}`]]);
      return await forwardFrom(`127.1.0.${n + 1}`, receiver.port);
    }),
  );
  const deliver = async (TARGET_CONSENT: string) => {
    const { accountId } = await createTestAccount(database);
    const UNSAFE_ALLOWED_TARGETS = `*.many.test:${receiver.port}`;
    await allowTargets(database.pool, [UNSAFE_ALLOWED_TARGETS]);
    const env = { TARGET_CONSENT, TARGET_DNS_SERVERS: names.address, UNSAFE_ALLOWED_TARGETS };
    const dispatcher = startTestDispatcher(database, [receiver], env);
    const startedAtMs = performance.now();
    await publishMany(
      database.pool,
      Array(many).fill(accountId),
      addresses.map((_, n) => `{"id":"${n}","status":"succeeded"}`),
      addresses.map((_, n) => `https://r${n}.many.test:${receiver.port}/in`),
    );
    const attempts = await dispatcher.waitForAttempts(many, 20_000);
    const tookMs = performance.now() - startedAtMs;
    await dispatcher.stop();
    for (const { delivered } of attempts) expect(delivered.result).toMatchObject({ outcome: "succeeded" });
    return tookMs;
  };
  const without = await deliver("");
  const asked = await deliver("success");
  for (const address of addresses) address.close();
  await Promise.all([names.close(), receiver.close()]);
  expect(asked, `without consent it took ${without} ms`).toBeLessThan(1.3 * without + patience(1_000));
});

it.each([
  ["lead to one place", [["127.1.0.1"]]],
  ["lead nowhere", []],
])("a new receiver does not wait for a thousand new names of its account that %s", async (_, lead) => {
  const [names, good] = [await startNameServer(), await startReceiver()];
  const hosts = Array.from({ length: 1_000 }, (_, n) => `r${n}.wild.test`);
  for (const host of hosts) names.script(host, lead);
  const allowed = [`*.wild.test:${good.port}`, `localhost:${good.port}`];
  await allowTargets(database.pool, allowed);
  const { accountId } = await createTestAccount(database);
  const publish = (urls: string[]) =>
    publishMany(
      database.pool,
      urls.map(() => accountId),
      urls.map((_, n) => `{"id":"${urls.length}-${n}","status":"succeeded"}`),
      urls,
    );
  const dispatcher = startTestDispatcher(database, [good], {
    TARGET_CONSENT: "success",
    TARGET_DNS_SERVERS: names.address,
    UNSAFE_ALLOWED_TARGETS: allowed.join(","),
    DISPATCH_IN_FLIGHT_MAX: "1000",
  });
  await publish(hosts.map((host) => `https://${host}:${good.port}/in`));
  // More than its account has places for.
  await dispatcher.waitForAttempts(40);
  const startedAtMs = performance.now();
  await publish([good.url("/in").href]);
  await good.waitForRequests(1, 100_000);
  // Behind them it came after 44 s.
  expect(performance.now() - startedAtMs).toBeLessThan(patience(4_000));
  // Some 530 at once, as the account has 32 places, and then fifty a second.
  const lookedUp = () => new Set(names.queries.map(({ name }) => name)).size;
  await expect.poll(lookedUp, { timeout: patience(20_000) }).toBeGreaterThan(800);
  expect(performance.now() - startedAtMs).toBeGreaterThan(3_000);
  await dispatcher.stop();
  await Promise.all([names.close(), good.close()]);
});

it("names whose turn nobody could tell, or that we failed before, cost their account nothing", async () => {
  const accountId = await insertAccount(database.pool);
  const gone = new Pool({ connectionString: "postgresql://127.0.0.1:1/none" });
  const turns = receiverTurns(gone, gone);
  let names = 0;
  const newTurn = () =>
    createTurn({ accountId, isFirst: true }, `https://n${names++}.example.com`, turns, 20_000);
  const fails = async (isOurs: boolean) => {
    const turn = newTurn();
    const rest = turn.begin();
    await turn.end(false, isOurs);
    return rest;
  };
  // From here on they are counted.
  expect(await fails(false)).toBeNull();
  for (let n = 0; n < 700; n++) expect(await fails(true)).toBeNull();
  for (let n = 0; n < 700; n++) {
    const turn = newTurn();
    expect(turn.begin()).toBeNull();
    await expect(turn.admit("192.0.2.1")).rejects.toThrow("ECONNREFUSED");
    await expect(turn.end(false)).rejects.toThrow("ECONNREFUSED");
  }
  // Nor does one that nobody was asked about.
  const asked = receiverTurns(database.pool, database.pool);
  const lock = await lockTable(database.pool, "receivers");
  const take = async (n: number) => {
    const turn = createTurn({ accountId, isFirst: true }, `https://t${n}.example.com`, asked, 20_000);
    const rest = turn.begin();
    await turn.admit(`192.0.2.${n}`).catch((error) => error);
    await turn.end(false);
    return rest;
  };
  const busy = [0, 1, 2, 3].map(take);
  await untilSomebodyWaits(database.pool, 4);
  const first = asked.lookUps.begin(accountId, new URL("https://dead.example.com"));
  first.end("failed");
  for (const from of [10, 310, 610]) {
    const rests = await Promise.all(Array.from({ length: 300 }, (_, n) => take(from + n)));
    expect(rests).toEqual(Array(300).fill(null));
  }
  await lock.commit();
  await Promise.all(busy);
  await gone.end();
});

it("a receiver that is proven between claim and turn gets the payload, and no challenge", async () => {
  const receiver = await startReceiver();
  await allowTargets(database.pool, [`localhost:${receiver.port}`]);
  const { accountId } = await createTestAccount(database, receiver.url("/in").href);
  const has = await begin(database.pool, "lock table sealpost.receivers in share row exclusive mode");
  const analysis = '{"id":"m-1","status":"succeeded"}';
  await publishMany(database.pool, [accountId], [analysis], [null]);
  const dispatcher = startTestDispatcher(database, [receiver], { TARGET_CONSENT: "challenge" });
  await untilSomebodyWaits(database.pool);
  const proof = { account_id: accountId, origin: receiver.url().origin, proven_at: new Date() };
  await insertRow(has.client, "receivers", proof);
  await has.commit();
  const [request] = await receiver.waitForRequests(1, 20_000);
  await dispatcher.waitForAttempts(1);
  expect(JSON.parse(request!.body.toString()).data).toMatchObject({ id: "m-1" });
  await dispatcher.stop();
  await receiver.close();
});

it("a challenge's text is in its body alone", async () => {
  const receiver = await startReceiver({ handler: ({ headers }) => ({ body: `${headers["webhook-id"]}` }) });
  await allowTargets(database.pool, [`localhost:${receiver.port}`]);
  const { accountId } = await createTestAccount(database, receiver.url("/in").href);
  await setEndpoint(database.pool, accountId, receiver.url("/in").href, { signsStandard: true });
  await publishMany(database.pool, [accountId], ['{"id":"m-2","status":"succeeded"}'], [null]);
  const dispatcher = startTestDispatcher(database, [receiver], { TARGET_CONSENT: "challenge" });
  const [attempt] = await dispatcher.waitForAttempts(1);
  expect(attempt!.delivered.recording.attempt).toMatchObject({ errorCode: "target_not_confirmed" });
  const [{ headers, body }] = (await receiver.waitForRequests(1)) as [ReceivedRequest];
  expect(JSON.stringify(headers)).not.toContain(JSON.parse(body.toString()).challenge);
  await dispatcher.stop();
  await receiver.close();
});
