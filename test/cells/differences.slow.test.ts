import { afterAll, beforeAll, expect, it } from "vitest";
import { readRetention, writeRetention } from "../../src/base/database/cells.ts";
import { clockRefusalOf, refuseDifferences, retentionRefusalOf } from "../../src/cells/beginning.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { createTestCells, killedAt, type TestCells } from "../support/cells.ts";
import { createTestAccount, rowOf } from "../support/installation.ts";

const DAY_MS = 86_400_000;
const usual = {
  analysisRetentionMs: 7 * DAY_MS,
  logRetentionMs: 30 * DAY_MS,
  auditRetentionMs: 365 * DAY_MS,
  idempotencyRetentionMs: DAY_MS,
};

let cells: TestCells;
beforeAll(async () => {
  cells = await createTestCells();
});
afterAll(() => cells.drop());

it("an account can go where everything is kept for as long, or longer, or by nobody yet", () => {
  expect(retentionRefusalOf(usual, usual)).toBe(null);
  expect(retentionRefusalOf(usual, { ...usual, logRetentionMs: 31 * DAY_MS })).toBe(null);
  expect(retentionRefusalOf(null, usual)).toBe(null);
  expect(retentionRefusalOf(usual, null)).toBe(null);
});

it.each([
  ["analysisRetentionMs", "ANALYSIS_RETENTION_SECONDS is 604799 there and 604800 here", 1_000],
  ["logRetentionMs", "LOG_RETENTION_DAYS is 29 there and 30 here", DAY_MS],
  ["auditRetentionMs", "The audit log's retention in days is 364 there and 365 here", DAY_MS],
  [
    "idempotencyRetentionMs",
    "The retention of idempotency keys in seconds is 86399 there and 86400 here",
    1_000,
  ],
] as const)("it cannot where %s is shorter", (name, told, lessMs) => {
  expect(retentionRefusalOf(usual, { ...usual, [name]: usual[name] - lessMs })).toContain(told);
});

it("clocks may be ten seconds apart", () => {
  expect(clockRefusalOf(10_000)).toBe(null);
  expect(clockRefusalOf(-10_000)).toBe(null);
  expect(clockRefusalOf(10_400_000)).toContain("10400 s ahead of the source's");
  expect(clockRefusalOf(-11_000)).toContain("11 s behind the source's");
});

it("a move is refused before anything is closed, and goes on once it was begun", async () => {
  const { accountId } = await createTestAccount(cells.source, "https://hooks.example.com/");
  const move = cells.move(accountId);
  expect(await readRetention(cells.source.pool)).toBe(null);
  await refuseDifferences(move);
  await writeRetention(cells.source.pool, usual);
  await writeRetention(cells.target.pool, { ...usual, logRetentionMs: 7 * DAY_MS });
  expect(await readRetention(cells.target.pool)).toEqual({ ...usual, logRetentionMs: 7 * DAY_MS });
  await expect(moveAccount(move)).rejects.toThrow("LOG_RETENTION_DAYS is 7 there and 30 here");
  expect(await rowOf(cells.source.pool, "accounts", { id: accountId })).toMatchObject({ moved_to: null });

  await writeRetention(cells.target.pool, usual);
  await expect(moveAccount({ ...move, ...killedAt("copy") })).rejects.toThrow("killed");
  await writeRetention(cells.target.pool, { ...usual, logRetentionMs: 7 * DAY_MS });
  await moveAccount(move);
});
