import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createReadinessCheck } from "../../src/app/monitoring.ts";
import { ConfigError, readConfig } from "../../src/base/config/config.ts";
import { migrate, readMigrationNames } from "../../src/base/database/migrate.ts";
import { AREAS } from "../../src/base/model/areas.ts";
import { createEmptyDatabase, createTestDatabase, type TestDatabase } from "../support/database.ts";
import { startTestDispatcher } from "../support/dispatching.ts";
import { createTestAccount, publish, SECRETS_KEY } from "../support/installation.ts";
import { startReceiver } from "../support/receiver.ts";
import { type Json, startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

describe("AREAS", () => {
  test("has both unless it is set, in one order, each once", () => {
    expect(readConfig({}).areas).toEqual(AREAS);
    expect(readConfig({ AREAS: "workspace, webhooks,webhooks" }).areas).toEqual(AREAS);
    expect(readConfig({ AREAS: "workspace" }).areas).toEqual(["workspace"]);
  });

  test.each(["pages", "webhooks,pages", "webhooks,", "Webhooks"])(
    "refuses %j, and says what there is",
    (text) => {
      const refused = () => readConfig({ AREAS: text });
      expect(refused).toThrow(ConfigError);
      expect(refused).toThrow(
        `AREAS is ${JSON.stringify(text)} but must be a comma-separated list of any of webhooks, workspace.`,
      );
    },
  );
});

describe.each(AREAS)("with %s alone", (area) => {
  let database: TestDatabase;
  let api: TestApi;
  beforeAll(async () => {
    database = await createEmptyDatabase();
    await migrate({ databaseUrl: database.url, areas: [area] });
    api = await startTestApi(database, { AREAS: area });
  });
  afterAll(async () => {
    await api.close();
    await database.drop();
  });
  const statusOf = async (path: string) => (await api.ask("GET", path)).status;

  test("the API has the operations of that area, and those that every installation has", async () => {
    const { body } = await api.ask("GET", "/v1/operations?limit=100");
    const keys = (body.items as Json[]).map(({ key }) => key);
    expect(keys).toEqual(declaredOperations([area]).map(({ key }) => key));
    expect(keys).toEqual(expect.arrayContaining(["api_keys.create", "audit.list", "operations.list"]));
    const hasWebhooks = area === "webhooks";
    expect(await statusOf("/v1/webhooks/deliveries")).toBe(hasWebhooks ? 200 : 404);
    expect(await statusOf("/guide")).toBe(hasWebhooks ? 200 : 404);
    expect(await statusOf("/v1/spaces")).toBe(hasWebhooks ? 404 : 200);
    for (const path of [
      "/v1/api-keys",
      "/v1/audit",
      "/readyz",
      "/reference/",
      "/errors",
      "/v1/openapi.json",
    ]) {
      expect(await statusOf(path), path).toBe(200);
    }
  });

  test("the reference has a heading for every operation, and none without one", async () => {
    const document = (await api.ask("GET", "/v1/openapi.json")).body as {
      tags: { name: string }[];
      paths: Record<string, Record<string, { tags: string[] }>>;
      webhooks: Record<string, Record<string, { tags: string[] }>>;
    };
    const described = [...Object.values(document.paths), ...Object.values(document.webhooks)];
    const used = described.flatMap((methods) => Object.values(methods).flatMap(({ tags }) => tags));
    expect(document.tags.map(({ name }) => name).sort()).toEqual([...new Set(used)].sort());
  });

  test.runIf(area === "webhooks")(
    "what is published and erased by a user may be called like a run",
    async () => {
      const { key } = api.account;
      const analysis = { id: randomUUID(), status: "succeeded" };
      expect((await api.ask("POST", "/v1/analyses", { key, body: { analysis } })).status).toBe(202);
      expect((await api.ask("DELETE", `/v1/analyses/${analysis.id}`, { key })).status).toBe(200);
    },
  );

  test("the database is ready for it, and for both once they are migrated", async () => {
    const problems = async (areas: string) =>
      await (await createReadinessCheck(database.pool, readConfig({ AREAS: areas }), SECRETS_KEY))();
    expect(await problems(area)).toEqual([]);
    const files = (await readMigrationNames(["workspace"])).filter((name) => name.startsWith("workspace/"));
    const missing = files.map((file) => `The migration ${file} is not applied: run migrate.`);
    expect(await problems("webhooks,workspace")).toEqual(area === "webhooks" ? missing : []);
    await migrate({ databaseUrl: database.url });
    expect(await problems("webhooks,workspace")).toEqual([]);
    // An area that is off keeps its tables.
    expect(await migrate({ databaseUrl: database.url, areas: ["webhooks"] })).toEqual([]);
  });
});

test("a dispatcher without the webhooks leaves deliveries to those that have them", async () => {
  const database = await createTestDatabase();
  const receiver = await startReceiver();
  const without = startTestDispatcher(database, [receiver], { AREAS: "workspace" });
  const { accountId } = await createTestAccount(database, receiver.url("/").href);
  for (let n = 0; n < 10; n++) await publish(database.pool, accountId, `{"id":"${n}","status":"succeeded"}`);
  const having = startTestDispatcher(database, [receiver]);
  try {
    await having.waitForAttempts(10);
    expect(without.attempts).toEqual([]);
    expect([...without.failures, ...having.failures]).toEqual([]);
  } finally {
    await Promise.all([without.stop(), having.stop()]);
    await receiver.close();
    await database.drop();
  }
});
