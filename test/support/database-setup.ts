import { randomBytes } from "node:crypto";
import pg from "pg";
import type { TestProject } from "vitest/node";
import { migrate } from "../../src/base/database/migrate.ts";
import { startTestServer } from "./test-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    testDatabases: {
      readonly adminUrl: string;
      readonly templateName: string;
      /** Why the template could not be made: told by the tests that need it, not by those that do not. */
      readonly failure: string | null;
    };
  }
}

/** vitest global setup: one server and one migrated template database for the whole run. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  // What is counted, planned or read must not depend on whether it came by. Tests that want a VACUUM ask for it.
  const server = await startTestServer({ settings: { autovacuum: "off" } });
  console.log(
    `PostgreSQL: ${server.kind}${process.env.TEST_DATABASE_URL ? "" : " (TEST_DATABASE_URL names another)"}`,
  );
  // Several runs may share one server.
  const templateName = `sealpost_test_${randomBytes(4).toString("hex")}`;
  const adminUrl = server.url("postgres");
  const admin = new pg.Client({ connectionString: adminUrl });
  // A lost connection shows in the queries at the end; without a listener it would end the run at once.
  admin.on("error", () => undefined);
  await admin.connect();
  await admin.query(`create database ${templateName}`);
  const failure = await migrate({ databaseUrl: server.url(templateName) }).then(
    () => null,
    (error: unknown) => String(error),
  );
  project.provide("testDatabases", { adminUrl, templateName, failure });

  return async () => {
    const { rows } = await admin.query<{ datname: string }>(
      "select datname from pg_database where starts_with(datname, $1) order by datname desc",
      [templateName],
    );
    for (const { datname } of rows) await admin.query(`drop database if exists ${datname} with (force)`);
    await admin.end();
    await server.stop();
  };
}
