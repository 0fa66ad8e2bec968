import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DAY_MS } from "../../../src/base/model/time.ts";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { createTestAccount, insertRow, rowsOf } from "../../support/installation.ts";

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createTestAccount(database));
});
afterAll(() => database.drop());

const run = (args: readonly string[], isTerminal = false) =>
  runSealpost(["consumer", ...args], { env: { DATABASE_URL: database.url }, isTerminal });

test("an account's consumers are listed and removed, and its audit log says so", async () => {
  const of = ["--account", accountId];
  expect((await run(["list", ...of], true)).stdout).toBe("No consumers yet.\n");
  const readTo = new Date(Date.now() - 2 * DAY_MS);
  const at = readTo.toISOString();
  const row = { account_id: accountId, key_id: randomUUID(), updated_at: readTo };
  const position = readTo.getTime() * 1_000;
  await insertRow(database.pool, "feed_consumers", { ...row, name: "billing", position });
  const old = { name: "a.rchive", position: 1, other_seen_at: new Date() };
  await insertRow(database.pool, "feed_consumers", { ...row, ...old });
  const feed = { account_id: accountId, position: Date.now() * 1_000, delivery_id: randomUUID() };
  await insertRow(database.pool, "feed", feed);

  const { stdout } = await run(["list", ...of]);
  expect(JSON.parse(stdout)).toMatchObject([
    { name: "a.rchive", events_behind: 1, expired: true, other_seen_at: expect.stringMatching(/Z$/) },
    { name: "billing", read_to: at, updated_at: at, events_behind: 1, expired: false, other_seen_at: null },
  ]);
  const shown = (await run(["list", ...of], true)).stdout;
  expect(shown).toMatch(/name .*behind .*read to/);
  expect(shown).toMatch(/a\.rchive +1, expired/);

  expect(await run(["remove", ...of, "--name", "billing"], true)).toMatchObject({
    code: 0,
    stdout: "Removed.\n",
  });
  const again = await run(["remove", ...of, "--name", "billing"]);
  expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining("sealpost consumer list") });
  expect(await rowsOf(database.pool, "feed_consumers", { account_id: accountId })).toMatchObject([
    { name: old.name },
  ]);
  expect(await rowsOf(database.pool, "audit_log", { account_id: accountId })).toMatchObject([
    {
      operation_key: "webhooks.events.consumers.remove",
      actor: "command_line",
      details: { name: "billing" },
    },
  ]);
  const nobody = await run(["list", "--account", randomUUID()]);
  expect(nobody).toMatchObject({ code: 2, stderr: expect.stringContaining("sealpost account list") });
});
