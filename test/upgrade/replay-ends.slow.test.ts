// A bulk replay that the version before had all but ended when the schema changed under it.
import { join } from "node:path";
import pg from "pg";
import { expect, test } from "vitest";
import { migrate } from "../../src/base/database/migrate.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import { createEmptyDatabase } from "../support/database.ts";
import { insertAccount, insertRow, rowOf } from "../support/installation.ts";
import { openRelease } from "./release.ts";

test("a replay whose last delivery was started by the version before ends", async () => {
  const [database, { folder }] = await Promise.all([createEmptyDatabase(), openRelease()]);
  const { url: databaseUrl } = database;
  await migrate({ databaseUrl, sqlDir: join(folder, "sql") });
  const pool = new pg.Pool({ connectionString: databaseUrl });
  const account_id = await insertAccount(pool);
  const common = { account_id, filter: {}, rate_per_second: 5, created_at: new Date(), paced_at: new Date() };
  // Its function says that one is done when it finds nothing more to start.
  const started = { status: "running", matched: 3, replayed: 2, skipped: 1 };
  const { id } = await insertRow(pool, "replays", { ...common, ...started });
  const skipped = { status: "running", matched: 1, replayed: 0, skipped: 1 };
  const { id: idOfSkipped } = await insertRow(pool, "replays", { ...common, ...skipped });
  await migrate({ databaseUrl });
  for (let n = 0; n < 2; n++) await advanceReplays(pool, 86_400_000, new Date(Date.now() + 10_000));
  expect(await rowOf(pool, "replays", { id })).toMatchObject({ status: "done" });
  expect(await rowOf(pool, "replays", { id: idOfSkipped })).toMatchObject({ status: "done" });
  await pool.end();
  await database.drop();
});
