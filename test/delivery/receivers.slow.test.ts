import { expect, it } from "vitest";
import { asMeant } from "../../src/delivery/deliver.ts";
import { receiverTurns } from "../../src/delivery/receiver-turns.ts";
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
  createTestAccount,
  insertAccount,
  insertRow,
  publishMany,
  rowOf,
  rowsOf,
} from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { startReceiver } from "../support/receiver.ts";

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
