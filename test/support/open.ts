// What a test file opens once, at its top, and what is closed when its tests are over.
import type { Pool } from "pg";
import { afterAll } from "vitest";
import { createTestDatabase, type TestDatabase } from "./database.ts";
import { openDispatchPool } from "./delivery-rows.ts";
import { startTestApi, type TestApi } from "./sealpost-api.ts";

export async function openDatabase(): Promise<TestDatabase> {
  const database = await createTestDatabase();
  afterAll(() => database.drop());
  return database;
}

/** `pool`: as a dispatcher's. */
export async function openForDispatch(): Promise<{ readonly database: TestDatabase; readonly pool: Pool }> {
  const database = await openDatabase();
  const pool = openDispatchPool(database);
  afterAll(() => pool.end());
  return { database, pool };
}

/** `env`: environment variables of the API. */
export async function openApi(
  env: Record<string, string> = {},
): Promise<{ readonly database: TestDatabase; readonly api: TestApi }> {
  const database = await openDatabase();
  const api = await startTestApi(database, env);
  afterAll(() => api.close());
  return { database, api };
}
