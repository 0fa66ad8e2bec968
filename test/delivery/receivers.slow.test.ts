// Which receiver a URL names, however it is spelled, what rests with it, and what is remembered of it.
import { Pool } from "pg";
import { expect, it } from "vitest";
import { asMeant } from "../../src/delivery/deliver.ts";
import { setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { createTurn, receiverTurns } from "../../src/delivery/receiver-turns.ts";
import {
  endTurn,
  findEndedRests,
  refuseUrl,
  requestForm,
  restingBetweenTurns,
} from "../../src/delivery/receivers-sql.ts";
import { judgeTargetUrl } from "../../src/egress/rules/target-url.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import {
  allowTargets,
  begin,
  createTestAccount,
  findWaiting,
  insertAccount,
  insertRow,
  lockTable,
  publishMany,
  rowOf,
  rowsOf,
  untilSomebodyWaits,
} from "../support/installation.ts";
import { startNameServer } from "../support/name-server.ts";
import { openDatabase } from "../support/open.ts";
import { forwardFrom } from "../support/ports.ts";
import { type ReceivedRequest, startReceiver } from "../support/receiver.ts";
import { patience } from "../support/time-limits.ts";

const database = await openDatabase();

it.each([
  "https://Hooks.Example.com/in?x=1",
  "https://hooks.example.com:443",
  "https://HOOKS.example.com:443?x",
  "https://hooks.example.com:8443/",
  "https://[2001:DB8::1]:443/",
])("the origin of %s is what its URL means", async (url) => {
  const { rows } = await database.pool.query<{ origin: string }>("select sealpost.origin($1) as origin", [
    url,
  ]);
  expect(rows[0]!.origin).toBe(new URL(url).origin);
});

it.each([
  ["https://n1.example.com/x", true],
  ["https://N1.example.com:443?x", true],
  ["https://%6e1.example.com/x", true],
  ["https://n1.example.com:0443/x", true],
  ["https://b\u00fccher.example.com/x", true],
  ["https://134744072/x", true],
  ["https://n2.example.com/x", false],
  ["https://xn--bcher-kva.example.com/x", false],
])("what is for %s waits for its receiver's turn: %s", async (url, is) => {
  const account = await insertAccount(database.pool);
  const isResting = async () => {
    const resting = restingBetweenTurns("$1::uuid", "$2::text");
    return (await database.pool.query(`select ${resting} as is`, [account, url])).rows[0].is;
  };
  expect(await isResting()).toBe(false);
  const row = { account_id: account, origin: "https://n1.example.com", next_at: new Date() };
  await insertRow(database.pool, "receivers", row);
  expect(await isResting()).toBe(is);
  await endTurn(database.pool, account, url, true);
  expect(await isResting(), "it is proven").toBe(false);
  await endTurn(database.pool, account, "https://n3.example.com/", true);
  expect(await isResting(), "and stays so").toBe(false);
});

it.each([
  [
    "https://B\u00fccher.example.com:0443/x",
    ["https://b\u00fccher.example.com:0443", "https://xn--bcher-kva.example.com"],
  ],
  ["https://Hooks.example.com:443/x", ["https://hooks.example.com"]],
  ["https:/mine.example.com/victim.example.com", ["https://mine.example.com"]],
])("what is proven by %s is %j", async (url, origins) => {
  const account_id = await insertAccount(database.pool);
  await endTurn(database.pool, account_id, url, true);
  const rows = await rowsOf(database.pool, "receivers", { account_id });
  expect(rows.map(({ origin }) => origin).sort()).toEqual(origins);
});

it.each([
  ["/in?", "/in"],
  ["/%69n%2f%C3%a9?%69", "/in%2F%C3%A9?%69"],
  ["/%7ea/%2e%2e/b%3F", "/b%3F"],
  ["/in?x=1", "/in?x=1"],
  ["/a%7Cb%5bc]%21%40%3b%2F%5c", "/a|b[c]!@;%2F%5C"],
])("what %s asks for is %s", (path, form) => {
  expect(requestForm(`HTTPS://hooks.example.com:443${path}`)).toBe(`https://hooks.example.com${form}`);
});

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

it.each([
  ["proven meanwhile", { proven_at: new Date() }, "https://old.example.com/in", null, true],
  ["the endpoint's", {}, "https://OLD.example.com:443/in", null, false],
  ["left by the endpoint", {}, "https://new.example.com/in", null, true],
  ["perhaps the endpoint's", {}, "https://%6fld.example.com/in", null, false],
  ["a webhook_url's", {}, "https://new.example.com/in", "https://old.example.com/in", false],
])("the rest of a receiver that is %s is over: %s", async (_, row, endpoint, webhookUrl, is) => {
  const { accountId } = await createTestAccount(database, endpoint);
  const receiver = { account_id: accountId, origin: "https://old.example.com" };
  await insertRow(database.pool, "receivers", { ...receiver, ...row });
  const lanes = "select sealpost.lane($1, $2)::text as lane";
  const { lane } = (await database.pool.query(lanes, [accountId, webhookUrl])).rows[0];
  const resting = { receiver: `${accountId} ${receiver.origin}`, lane };
  expect(await findEndedRests(database.pool, [resting])).toEqual(is ? [resting.receiver] : []);
});

it("a suspended receiver stays so after a restart, until its next 2xx", async () => {
  let inFlight = 0;
  let most = 0;
  let status = 404;
  const receiver = await startReceiver({
    handler: async () => {
      most = Math.max(most, ++inFlight);
      await new Promise(setImmediate);
      inFlight--;
      return { status };
    },
  });
  const { accountId } = await createTestAccount(database, receiver.url("/in").href);
  const { lane } = (await database.pool.query("select sealpost.lane($1, null)::text as lane", [accountId]))
    .rows[0];
  const suspended = { account_id: accountId, lane, suspended_at: new Date() };
  await insertRow(database.pool, "answered_lanes", suspended);
  const publish = (from: number) =>
    publishMany(
      database.pool,
      Array.from({ length: 40 }, () => accountId),
      Array.from({ length: 40 }, (_, n) => `{"id":"s-${from + n}","status":"succeeded"}`),
      Array.from({ length: 40 }, () => null),
    );
  await publish(0);
  const dispatcher = startTestDispatcher(database, [receiver]);
  await dispatcher.waitForAttempts(40, 15_000);
  expect(most).toBe(1);
  status = 200;
  await publish(40);
  await dispatcher.waitForAttempts(80, 15_000);
  expect(most).toBeGreaterThan(1);
  await dispatcher.stop();
  expect(await rowOf(database.pool, "answered_lanes", { account_id: accountId })).toMatchObject({
    suspended_at: null,
  });
  await receiver.close();
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
  for (let n = 0; n < 200; n++) {
    expect(await fails(true)).toBeNull();
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
  for (const from of [10, 80]) {
    const rests = await Promise.all(Array.from({ length: 70 }, (_, n) => take(from + n)));
    expect(rests).toEqual(Array(70).fill(null));
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

it("URLs that are spelled otherwise are looked up together, as what they mean", async () => {
  const { accountId } = await createTestAccount(database, "https://one.example.com/");
  const proven = { account_id: accountId, origin: "https://one.example.com", proven_at: new Date() };
  await insertRow(database.pool, "receivers", proven);
  await refuseUrl(database.pool, accountId, "https://two.example.com/in");
  const turns = receiverTurns(database.pool, database.pool);
  const asked: number[] = [];
  const claimOf = (webhookUrl: string) =>
    ({
      kind: "leased",
      accountId,
      webhookUrl,
      endpointUrl: null,
      provenAtMs: null,
      isRefused: false,
    }) as never;
  const urls = ["https://ONE.example.com/", "https://two.example.com/%69n?", "https://two.example.com/in"];
  const meant = await asMeant(urls.map(claimOf), {
    findTarget: ({ webhookUrl }) => judgeTargetUrl(webhookUrl!),
    turns: {
      ...turns,
      findReceivers: (those) => {
        asked.push(those.length);
        return turns.findReceivers(those);
      },
    },
  });
  expect(asked).toEqual([2]);
  expect(meant).toMatchObject([
    { provenAtMs: expect.any(Number), isRefused: false },
    { provenAtMs: null, isRefused: true },
    // By its text the claim itself knows it.
    { provenAtMs: null, isRefused: false },
  ]);
});
