import { randomBytes } from "node:crypto";
import pg from "pg";
import { inject } from "vitest";

/** A migrated database for one test or test file. */
export type TestDatabase = {
  readonly url: string;
  readonly pool: pg.Pool;
  /** Ends the pool and drops the database, whoever is still connected to it. */
  drop(): Promise<void>;
};

/** Clones the template database that this test run migrated once. */
export function createTestDatabase(): Promise<TestDatabase> {
  return createFrom(inject("testDatabases").templateName);
}

/** A database without our schema. */
export function createEmptyDatabase(): Promise<TestDatabase> {
  return createFrom("template0");
}

async function createFrom(template: string): Promise<TestDatabase> {
  const { adminUrl, templateName, failure } = inject("testDatabases");
  if (failure !== null) throw new Error(`The template database could not be migrated: ${failure}`);
  const name = `${templateName}_${randomBytes(6).toString("hex")}`;
  await runSql(adminUrl, `create database ${name} template ${template}`);

  const url = new URL(adminUrl);
  url.pathname = `/${name}`;
  const pool = new pg.Pool({ connectionString: url.href, max: 10 });
  // A test that stops the server or drops the database cuts idle connections, which is no failure of the pool.
  pool.on("error", () => undefined);
  return {
    url: url.href,
    pool,
    drop: async () => {
      await pool.end();
      await runSql(adminUrl, `drop database if exists ${name} with (force)`);
    },
  };
}

async function runSql(adminUrl: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: adminUrl });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}
