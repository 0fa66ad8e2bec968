import { beforeEach, describe, expect, it } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { COMMAND_LINE } from "../../src/base/model/audit.ts";
import { wholeAccount } from "../../src/base/model/reader.ts";
import type { DeliveryFilter } from "../../src/log/delivery-filter-api.ts";
import { previewReplay } from "../../src/log/replay-set-sql.ts";
import { createReplay } from "../../src/log/replays-sql.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows, insertAccount, publish, publishMany } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";

const RETENTION_MS = 7 * 86_400_000;
const LIMITS = { runningMax: 100, waitingMax: 1_000_000 };
const database = await openDatabase();
let accountId: string;
let serial = 0;

beforeEach(async () => {
  accountId = await insertAccount(database.pool);
});

const text = () => `{"id":"r-${++serial}","status":"failed"}`;

describe("a replay that is made", () => {
  it("is previewed: what it would take, what of that has a URL of its own, and what has expired", async () => {
    const [old] = await publishAt(database.pool, accountId, new Date(Date.now() - 3_600_000), [
      `r-${++serial}`,
    ]);
    await publish(database.pool, accountId, text());
    const open = () => publish(database.pool, accountId, text(), "https://a.example.com/");
    const own = [await open(), await open()];
    await changeRows(database.pool, "deliveries", { id: own }, { status: "failed" });
    const preview = (filter: DeliveryFilter, retentionMs: number) =>
      previewReplay(database.pool, wholeAccount(accountId), filter, retentionMs);
    expect(await preview({}, RETENTION_MS)).toEqual({ matched: 4, own_url: 2, expired: 0 });
    expect(await preview({}, 60_000)).toEqual({ matched: 3, own_url: 2, expired: 1 });
    const ofOld = { analysis_id: `r-${serial - 3}` };
    expect(await preview(ofOld, 60_000), old).toEqual({ matched: 0, own_url: 0, expired: 1 });
    const alone = { status: ["abandoned"], reason: ["no_target"] } as const;
    expect(await preview(alone, 60_000)).toEqual({ matched: 1, own_url: 0, expired: 1 });
  });

  it.each([
    [100, 100, "running"],
    [100, 101, "running"],
    [100, 99, "running"],
    [100, 102, "replay_changed"],
    [100, 98, "replay_changed"],
    [1, 0, "replay_changed"],
    [0, 1, "replay_changed"],
    [0, 0, "done"],
  ] as const)("of %i expected that match %i is %s", async (expectedMatched, matched, expected) => {
    const texts = Array.from({ length: matched }, text);
    const none = texts.map(() => null);
    await publishMany(
      database.pool,
      texts.map(() => accountId),
      texts,
      none,
    );
    const asNew = { filter: {}, note: null, createdBy: COMMAND_LINE, expectedMatched };
    const more = { ratePerSecond: 1, analysisRetentionMs: RETENTION_MS, limits: LIMITS };
    const made = await inTransaction(database.pool, (client) =>
      createReplay(client, wholeAccount(accountId), { ...asNew, ...more }),
    );
    expect(typeof made === "string" ? made : made.status).toBe(expected);
  });
});
