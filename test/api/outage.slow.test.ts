import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { endSessions, lockTable, untilSomebodyWaits } from "../support/installation.ts";
import { type Asked, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { patience } from "../support/time-limits.ts";

const ANSWER_MS = 5_000;

let database: TestDatabase;
let proxy: DatabaseProxy;
let api: TestApi;
beforeAll(async () => {
  database = await createTestDatabase();
  proxy = await startDatabaseProxy(database.url);
  api = await startTestApi({ ...database, url: proxy.url });
});
afterAll(async () => {
  await api.close();
  await proxy.close();
  await database.drop();
});

const uuid = "01900000-0000-7000-8000-000000000000";
const bodies: Readonly<Record<string, unknown>> = {
  "analyses.publish": { analysis: { id: "a", status: "failed" } },
  "webhooks.endpoint.set": { url: "https://hooks.example.com/" },
  "webhooks.replays.create": { filter: {} },
  "webhooks.notices.recipients.add": { address: "ada@example.com" },
};

/** Asks for everything at once; each answer with the milliseconds that it took. */
async function askForEverything(): Promise<[string, Asked, number][]> {
  return await Promise.all(
    declaredOperations().map(async ({ key, method, path }): Promise<[string, Asked, number]> => {
      const address = path.replace(/\{(\w+)\}/g, (_, name) => (name === "analysis_id" ? "a" : uuid));
      const startMs = performance.now();
      const answer = await api.ask(method, address, { body: bodies[key] });
      return [key, answer, performance.now() - startMs];
    }),
  );
}

async function expectAway(): Promise<void> {
  for (const [key, answer, tookMs] of await askForEverything()) {
    expect([key, answer.status, answer.body.code]).toEqual([key, 503, "temporarily_unavailable"]);
    expect(answer.headers.get("retry-after"), key).toMatch(/^[1-9]\d*$/);
    expect(answer.headers.get("ratelimit"), key).toMatch(/^"\w+";r=\d+;t=\d+$/);
    expect(tookMs, key).toBeLessThan(patience(ANSWER_MS));
  }
  expect((await api.ask("GET", "/readyz", { key: null })).status).toBe(503);
  expect((await api.ask("GET", "/healthz", { key: null })).status).toBe(200);
}

async function expectBack(): Promise<void> {
  // The first requests may still meet connections that the outage has broken.
  for (let tries = 0; tries < 20; tries++) {
    if ((await api.ask("GET", "/v1/operations")).status === 200) break;
  }
  const answers = await askForEverything();
  expect(answers.filter(([, { status }]) => status >= 500)).toEqual([]);
  expect((await api.ask("GET", "/readyz", { key: null })).status).toBe(200);
}

describe("while the database is away every answer is a 503 within 5 s, and then all is well again", () => {
  test("connections are refused", async () => {
    await expectBack();
    await proxy.cut();
    await expectAway();
    await proxy.restore();
    await expectBack();
  });

  test("nobody answers, on open connections and on new ones", async () => {
    await expectBack();
    proxy.hang();
    await expectAway();
    await expectAway();
    await proxy.restore();
    await expectBack();
  });

  test("connections are cut in the middle of a request", async () => {
    const holder = await lockTable(database.pool, "endpoints");
    const asked = api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: "https://hooks.example.com/" } });
    await endSessions(database.pool, await untilSomebodyWaits(database.pool));
    expect((await asked).status).toBe(503);
    await holder.rollback();
    await expectBack();
  });

  test("a table is locked for longer than anybody waits", async () => {
    const holder = await lockTable(database.pool, "deliveries");
    const startMs = performance.now();
    const answer = await api.ask("GET", "/v1/webhooks/deliveries");
    expect(answer.status).toBe(503);
    expect(performance.now() - startMs).toBeLessThan(patience(ANSWER_MS));
    // What needs nothing of it goes on.
    expect((await api.ask("GET", "/v1/webhooks/signing-secret")).status).toBe(200);
    await holder.rollback();
  });
});

test("it is said in the log, and not once for every request", () => {
  const said = api.log.filter(({ msg }) => msg === "the database does not answer");
  expect(said.length).toBeGreaterThan(0);
  const answers = api.log.filter(({ status }) => status === 503);
  expect(said.length).toBeLessThan(answers.length / 4);
  expect(api.log.filter(({ level }) => Number(level) >= 50)).toEqual([]);
});
