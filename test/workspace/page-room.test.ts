// A page waits in memory for its visitor to read it, where its account has its share of the room.
import { expect, test } from "vitest";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import { TemporarilyUnavailable } from "../../src/http/problems.ts";
import { createRendering } from "../../src/workspace/visiting/rendering.ts";
import { createPasswordTurns, createVisiting, visit } from "../../src/workspace/visiting/visits.ts";
import { startTestApi } from "../support/sealpost-api.ts";
import { api, database, pageWorld, usePages, world } from "./page-world.ts";

const VISITOR = { address: "192.0.2.8", isAsking: false, gone: new AbortController().signal };

usePages();

test("a page is in memory for its own account, whoever visits it, and one without room says so", async () => {
  const transferLimits = { ...TRANSFER_LIMITS, answerBytesMax: 1 };
  const full = await startTestApi(database, {}, { transferLimits });
  try {
    const { link } = await world.linked();
    const opened = await pageWorld(full).open(link);
    expect([opened.status, opened.headers["content-type"]]).toEqual([503, "text/html; charset=utf-8"]);
    expect(opened.headers["retry-after"]).toMatch(/^[1-9]\d*$/);
    expect(full.log.at(-1)).toMatchObject({ operation: "page", account_id: api.account.accountId });
    expect(await world.linkOf(link.id)).toMatchObject({ visit_count: 0 });
    expect((await world.open(link)).status).toBe(200);
  } finally {
    await full.close();
  }
});

test("a visit that has no room for its page is not counted", async () => {
  const { link } = await world.linked({ max_visits: 1 }, "é".repeat(1_000));
  const told: unknown[] = [];
  const hold = (accountId: string, bytes: number) => {
    told.push([accountId, bytes > 2_000]);
    throw new TemporarilyUnavailable("no room");
  };
  const { pool } = database;
  const options = createVisiting(pool, createRendering(pool), createPasswordTurns());
  const visitor = { token: String(link.url).split("/").at(-1)!, password: null, ...VISITOR, hold };
  const visiting = visit(options, visitor, (_accountId, _turn, work) => work());
  await expect(visiting).rejects.toThrow("no room");
  expect(told).toEqual([[api.account.accountId, true]]);
  expect((await world.linkOf(link.id)).visit_count).toBe(0);
});
