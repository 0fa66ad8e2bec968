import { expect, test } from "vitest";
import { createFindApiKey } from "../../src/app/api-server.ts";
import { createApiPool } from "../../src/base/database/pools.ts";
import { digestSecret } from "../../src/http/api-keys.ts";
import { createTestDatabase } from "../support/database.ts";
import { createTestAccount, createTestKey } from "../support/installation.ts";

test("requests with one key that come at once are one lookup and one note of its use", async () => {
  const database = await createTestDatabase();
  const { accountId } = await createTestAccount(database);
  const { apiKey, keyId } = await createTestKey(database.pool, accountId, ["webhooks:read"]);
  let statements = 0;
  const pool = createApiPool({
    databaseUrl: database.url,
    connectionsMax: 1,
    applicationName: "test keys",
    onError: () => undefined,
    onQuery: () => statements++,
  });
  const findApiKey = createFindApiKey(pool, Date.now);
  const digest = digestSecret(apiKey);
  const found = await Promise.all(Array.from({ length: 5 }, () => findApiKey(digest)));
  expect(found.map((key) => key?.id)).toEqual(Array.from({ length: 5 }, () => keyId));
  // Nobody waits for the note; what is asked after it on the one connection does.
  await pool.query("select 1");
  expect(statements).toBe(3);
  await pool.end();
  await database.drop();
});
