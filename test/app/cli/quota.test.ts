import { afterAll, beforeAll, expect, test } from "vitest";
import { QUOTA_NAMES } from "../../../src/base/model/storage.ts";
import { runSealpost } from "../../support/command.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { createTestAccount, rowsOf } from "../../support/installation.ts";

let database: TestDatabase;
let accountId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId } = await createTestAccount(database));
});
afterAll(() => database.drop());

const quota = (...args: string[]) =>
  runSealpost(["account", "quota", ...args], { env: { DATABASE_URL: database.url } });
const quotasOf = (stdout: string) =>
  Object.fromEntries(
    (JSON.parse(stdout).quotas as { quota: string; used: number; max: number | null }[]).map(
      ({ quota, used, max }) => [quota, [used, max]],
    ),
  );
const UNLIMITED = Object.fromEntries(QUOTA_NAMES.map((name) => [name, [0, null]]));

test("account quota shows what there is, sets and lifts, and the audit log tells of it", async () => {
  const before = await quota("--account", accountId);
  expect([before.code, quotasOf(before.stdout)]).toEqual([0, UNLIMITED]);
  const set = await quota("--account", accountId, "--set", "runs_per_day=100", "--set", "bytes=5000");
  expect(quotasOf(set.stdout)).toEqual({ ...UNLIMITED, runs_per_day: [0, 100], bytes: [0, 5_000] });
  const changed = await quota("--account", accountId, "--set", "runs_per_day=none", "--set", "bytes=0");
  expect(quotasOf(changed.stdout)).toEqual({ ...UNLIMITED, bytes: [0, 0] });
  const entries = await rowsOf(database.pool, "audit_log", { operation_key: "accounts.quota" });
  expect(entries.map(({ details }) => details)).toEqual([
    { runs_per_day: 100, bytes: 5_000 },
    { runs_per_day: null, bytes: 0 },
  ]);
});

test.each([
  ["runs_per_day", "NAME=NUMBER"],
  ["runs=5", "runs_per_day"],
  ["bytes=-1", "NAME=NUMBER"],
  ["bytes=1e3", "NAME=NUMBER"],
])("--set %s is a usage error", async (set, told) => {
  const { code, stderr } = await quota("--account", accountId, "--set", set);
  expect(code).toBe(2);
  expect(stderr).toContain(told);
});

test("an unknown account is a usage error, and nothing is written", async () => {
  const nobody = "0199a1f0-7d2c-7c3a-9b1e-000000000000";
  const { code, stderr } = await quota("--account", nobody, "--set", "bytes=1");
  expect(code).toBe(2);
  expect(stderr).toContain("sealpost account list");
  expect(await rowsOf(database.pool, "quotas", { account_id: nobody })).toEqual([]);
});
