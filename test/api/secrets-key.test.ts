import { afterAll, beforeAll, expect, test } from "vitest";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import { areaTests } from "../support/areas.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { countRows } from "../support/installation.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";

const SECRET_TABLES = ["api_keys", "signing_secrets", "console_sessions", "audit_log", "idempotency_keys"];
const bodies: Readonly<Record<string, unknown>> = {
  "api_keys.create": { name: "new", scopes: ["analyses:read"] },
  "console.links.create": { viewer: { id: "ada", label: "Ada" }, permissions: ["webhooks:read"] },
  ...Object.assign({}, ...areaTests.map((area) => area.bodies)),
};

let database: TestDatabase;
let api: TestApi;
let things: Readonly<Record<string, string>>;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database);
  things = Object.assign(
    {},
    ...(await Promise.all(areaTests.map((area) => area.makeThings(api, api.account)))),
  );
  // As it is for a process with another key that started while the database was away.
  await database.pool.query("update sealpost.settings set secrets_canary = null");
  await database.pool.query("delete from sealpost.signing_secrets");
  await createAccount(database.pool, "Sealed with another key", Buffer.alloc(32, 8));
});
afterAll(async () => {
  await api.close();
  await database.drop();
});

const storing = declaredOperations().filter(({ holdsSecret, effect }) => holdsSecret && effect === "write");

test.each(storing.map((operation) => [operation.key, operation] as const))(
  "%s is 503 while SECRETS_KEY is not the database's, and stores nothing",
  async (key, { method, path, needsUser }) => {
    const count = () => Promise.all(SECRET_TABLES.map((table) => countRows(database.pool, table, {})));
    const before = await count();
    const answer = await api.ask(
      method,
      path.replaceAll(/\{(\w+)\}/g, (_, name) => things[name]!),
      {
        key: needsUser ? api.account.key : api.account.ownKey,
        body: bodies[key],
      },
    );
    expect([answer.status, answer.body.code]).toEqual([503, "temporarily_unavailable"]);
    expect(answer.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
    expect(await count()).toEqual(before);
  },
);

test("what holds no secret is written all the same", async () => {
  const body = { url: "https://hooks.example.com/" };
  expect((await api.ask("PUT", "/v1/webhooks/endpoint", { body })).status).toBe(200);
});
