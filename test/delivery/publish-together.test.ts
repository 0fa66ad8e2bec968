import { describe, expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { publishAnalyses } from "../../src/publish/publish-call-sql.ts";
import { countRows, untilSomebodyWaits } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import { type AskOptions, startTestApi, type TestAccount } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";

const { database, api } = await openApi();

const HOOK = "https://hooks.example.com/x";
const analysis = (id: string, more: object = {}) => ({ id, status: "succeeded", ...more });
const publish = (id: string, options: AskOptions = {}, more: object = {}) =>
  api.ask("POST", "/v1/analyses", { body: { analysis: analysis(id, more), webhook_url: HOOK }, ...options });

/** How many transactions wrote the analyses whose id begins so. */
async function transactionsOf(prefix: string): Promise<number> {
  const { rows } = await database.pool.query(
    "select count(distinct xmin::text)::integer as n from sealpost.analyses where id like $1 || '%'",
    [prefix],
  );
  return rows[0].n;
}

describe("requests that come at once", () => {
  test("are published in few transactions, each with its own answer", async () => {
    const ids = Array.from({ length: 200 }, (_, n) => `many-${n}`);
    // Their connections are open: opening 200 takes longer than the transactions that they are to share.
    await Promise.all(ids.map(() => api.ask("GET", "/healthz", { key: null })));
    const answers = await Promise.all(ids.map((id) => publish(id)));
    expect(answers.map(({ status }) => status)).toEqual(ids.map(() => 202));
    expect(answers.map(({ body }) => body.analysis_id)).toEqual(ids);
    expect(new Set(answers.map(({ body }) => body.delivery_id)).size).toBe(200);
    expect(await transactionsOf("many-")).toBeLessThan(50);
  });

  test("are refused one by one, and a refused one costs the others nothing", async () => {
    const known = await publish("refused-known");
    const answers = await Promise.all([
      publish("refused-0"),
      publish("refused/no-id"),
      publish("refused-known", {}, { other: "text" }),
      publish("refused-1"),
      api.ask("POST", "/v1/analyses", { body: { analysis: analysis("refused-2"), webhook_url: "http://x" } }),
      publish("refused-known"),
      api.ask("POST", "/v1/analyses", { body: "{" }),
      publish("refused-3"),
    ]);
    expect(answers.map(({ status, body }) => [status, body.code])).toEqual([
      [202, undefined],
      [422, "invalid_analysis"],
      [409, "analysis_conflict"],
      [202, undefined],
      [422, "target_refused"],
      [202, undefined],
      [400, "invalid_request"],
      [202, undefined],
    ]);
    expect(answers[5]!.body).toEqual(known.body);
    expect(await countRows(database.pool, "deliveries", { analysis_id: "refused-2" })).toBe(0);
  });

  test("are stored byte for byte, or refused, whatever is in the texts beside them", async () => {
    const texts = {
      surrogate: '"\\ud800 \\udc00\\ud800"',
      nul: '"\\u0000 \\"\\u0000\\""',
      duplicate: '{"id":"a","id":"b","\\u0069d":1e999,"id":-0.0}',
      large: `"${"\\\\".repeat(500_000)}"`,
      brackets: `[${"[],".repeat(60_000)}[]]`,
      levels: `${"[".repeat(511)}${"]".repeat(511)}`,
    };
    const odd = Object.entries(texts).map(([name, text]) => ({
      id: `odd-${name}`,
      text: `{ "id": "odd-${name}","status":"succeeded", "odd":${text}}`,
    }));
    const send = (text: string, url: string = JSON.stringify(HOOK)) =>
      api.ask("POST", "/v1/analyses", { body: `{"webhook_url":${url},"analysis":${text}}` });
    const refused = [
      send('{"id":"odd\\u0000","status":"succeeded"}'),
      send('{"status":"succeeded"}'),
      send('{"status":"succeeded"}'),
      send('{"id":"odd-url","status":"succeeded"}', '"https://hooks.example.com/\\u0000"'),
      send('{"id":"odd-host","status":"succeeded"}', '"https://hooks.\\ud800.example.com/"'),
      send(`{"id":"odd-deep","status":"failed","odd":${"[".repeat(512)}${"]".repeat(512)}}`),
    ];
    const good = [
      ...odd.map(({ text }) => send(text)),
      ...Array.from({ length: 20 }, (_, n) => publish(`odd-beside-${n}`)),
    ];
    expect((await Promise.all(good)).map(({ status }) => status)).toEqual(good.map(() => 202));
    expect((await Promise.all(refused)).map(({ status }) => status)).toEqual(refused.map(() => 422));
    for (const { id, text } of odd) {
      const { bytes } = await api.ask("GET", `/v1/analyses/${id}`);
      expect(bytes.equals(Buffer.from(text)), id).toBe(true);
    }
  });

  test("are one request where they have one Idempotency-Key", async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => publish("same-key", { idempotencyKey: "the-same-key" })),
    );
    expect(new Set(answers.map(({ status, bytes }) => `${status} ${bytes}`)).size).toBe(1);
    expect(answers[0]!.status).toBe(202);
    const replayed = answers.filter(({ headers }) => headers.get("idempotent-replayed") === "true");
    expect(replayed).toHaveLength(19);
  });

  test("are one delivery where they have one analysis, and a conflict where it has two texts", async () => {
    const [one, other, third] = await Promise.all([
      publish("same-id"),
      publish("same-id"),
      publish("same-id", {}, { other: "text" }),
    ]);
    expect([one.status, other.status, third.status]).toEqual([202, 202, 409]);
    expect(other.body).toEqual(one.body);
  });

  test("keep their traces apart", async () => {
    const trace = (n: number) => `00-${"a".repeat(31)}${n}-${"b".repeat(16)}-01`;
    await Promise.all(
      [1, 2, 3].map((n) => publish(`trace-${n}`, { headers: n === 3 ? {} : { traceparent: trace(n) } })),
    );
    const { rows } = await database.pool.query(
      `select d.analysis_id, b.traceparent from sealpost.deliveries as d join sealpost.bodies as b
         on b.delivery_id = d.id where d.analysis_id like 'trace-%' order by 1`,
    );
    expect(rows.map(({ traceparent }) => traceparent)).toEqual([trace(1), trace(2), null]);
  });
});

test("have a limit of their own, by account and second", async () => {
  const limited = await startTestApi(database, { PUBLISH_RATE_PER_SECOND: "7", RATE_LIMIT_REQUESTS: "3" });
  const { headers } = await limited.ask("POST", "/v1/analyses", { body: { analysis: analysis("limited") } });
  expect(headers.get("ratelimit-policy")).toBe('"publish";q=7;w=1');
  const read = await limited.ask("GET", "/v1/analyses/limited");
  expect(read.headers.get("ratelimit")).toMatch(/^"default";r=2;/);
  await limited.close();
});

describe("an analysis that somebody else's open transaction is publishing", () => {
  test("waits by itself, and is that one's delivery once it has committed", async () => {
    const { accountId } = api.account;
    let isOver = false;
    let answered = 0;
    await inTransaction(database.pool, async (client) => {
      const text = '{"id":"held","status":"succeeded"}';
      const [deliveryId] = await publishAnalyses(client, [{ accountId, analysis: text, webhookUrl: HOOK }]);
      const waiting = publish("held").then((answer) => ({ answer, isOver }));

      // Others, again and again, while it waits.
      for (let round = 0; round < 20; round++) {
        const startMs = performance.now();
        const ids = Array.from({ length: 20 }, (_, n) => `beside-${round}-${n}`);
        const answers = await Promise.all(ids.map((id) => publish(id)));
        answered += answers.filter(({ status }) => status === 202).length;
        // Within the first round it is found out; afterwards nobody waits for it.
        if (round > 0) expect(performance.now() - startMs).toBeLessThan(patience(1_000));
      }
      isOver = true;
      await client.query("commit");
      const { answer, isOver: wasOver } = await waiting;
      // It was answered by then, or given up: the test's rounds may take longer than a statement may.
      if (answer.status === 202) expect([wasOver, answer.body.delivery_id]).toEqual([true, deliveryId]);
      else expect(answer.status).toBe(503);
      expect((await publish("held")).body).toEqual({ analysis_id: "held", delivery_id: deliveryId });
    });
    expect(answered).toBe(400);
  });

  test("does not end that one, though it goes on with another of theirs", async () => {
    const { accountId } = api.account;
    const text = (id: string) => `{"id":"${id}","status":"succeeded"}`;
    for (let round = 0; round < 5; round++) {
      const [first, second] = [`crossed-${round}-a`, `crossed-${round}-b`];
      const [requests, deliveries] = await inTransaction(database.pool, async (client) => {
        const publishHere = (id: string) =>
          publishAnalyses(client, [{ accountId, analysis: text(id), webhookUrl: HOOK }]);
        const [ofSecond] = await publishHere(second);
        // In the order of ids: the batch has the first when it waits for the second, and this one asks for the first.
        const asked = Promise.all([publish(first), publish(second)]);
        await untilSomebodyWaits(database.pool);
        const [ofFirst] = await publishHere(first);
        return [asked, [ofFirst, ofSecond]] as const;
      }).then(async ([asked, ids]) => [await asked, ids] as const);
      expect(requests.map(({ status }) => status)).toEqual([202, 202]);
      expect(requests.map(({ body }) => body.delivery_id)).toEqual(deliveries);
    }
  });

  test("is given up in time when that never ends, and delays nobody but itself", async () => {
    const account: TestAccount = await api.newAccount();
    await inTransaction(database.pool, async (client) => {
      const text = '{"id":"held-long","status":"succeeded"}';
      await publishAnalyses(client, [{ accountId: account.accountId, analysis: text, webhookUrl: HOOK }]);
      const waiting = publish("held-long", { key: account.ownKey });
      const beside = await Promise.all([
        publish("held-beside"),
        publish("held-beside", { key: account.ownKey }),
      ]);
      expect(beside.map(({ status }) => status)).toEqual([202, 202]);
      expect((await waiting).status).toBe(503);
    });
  });
});
