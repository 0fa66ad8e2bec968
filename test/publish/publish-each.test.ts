import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { insertApiKey } from "../../src/accounts/api-keys-sql.ts";
import { type PublishResult, type PublishWrite, publishWrites } from "../../src/delivery/analyses-sql.ts";
import { PublishRefusedError } from "../../src/publish/publish-call-sql.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createTestAccount, rowsOf, SECRETS_KEY } from "../support/installation.ts";

let database: TestDatabase;
let withEndpoint: string;
let withoutEndpoint: string;
let keyId: string;
beforeAll(async () => {
  database = await createTestDatabase();
  ({ accountId: withEndpoint } = await createTestAccount(database, "https://hooks.example.com/x"));
  ({ accountId: withoutEndpoint } = await createTestAccount(database));
  const key = await insertApiKey(database.pool, {
    ...{ accountId: withEndpoint, digest: Buffer.alloc(32), class: "test", name: null },
    ...{ scopes: [], expiresInSeconds: null },
  });
  keyId = key!.id;
});
afterAll(() => database.drop());

type Asked = { readonly accountId: string; readonly analysis: string } & Partial<PublishWrite>;

/** Requests with an account's key, each under an Idempotency-Key of its own. */
function publish(asked: readonly Asked[]): Promise<readonly PublishResult[]> {
  const writes = asked.map(({ accountId, ...rest }) => ({
    claim: {
      ...{ accountId, keyId, idempotencyKey: randomUUID(), operationKey: "analyses.publish" },
      fingerprint: Buffer.from("f"),
    },
    answer: (deliveryId: string) => ({
      ...{ status: 202, headers: {}, holdsSecret: false },
      body: Buffer.from(JSON.stringify({ delivery_id: deliveryId })),
    }),
    ...{ userId: null, traceparent: null },
    ...rest,
  }));
  return publishWrites(database.pool, writes, { secretsKey: SECRETS_KEY, lockWaitMs: 1_000 });
}

const TRACE = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
const text = (id: string, more: object = {}) => JSON.stringify({ id, status: "succeeded", ...more });
let count = 0;

/** What becomes of it, and what its rows say, with a new id. */
async function publishAmid(neighbours: number, change: (id: string) => Partial<Asked>) {
  const id = `amid-${++count}`;
  const asked = {
    accountId: withEndpoint,
    analysis: text(id),
    traceparent: null,
    userId: null,
    ...change(id),
  };
  const others = Array.from({ length: neighbours }, (_, n) => ({
    ...{ accountId: withEndpoint, analysis: text(`${id}-${n}`), traceparent: null, userId: null },
  }));
  const result = (await publish([asked, ...others]))[0]!;
  const [delivery] = await rowsOf(database.pool, "deliveries", { analysis_id: id });
  const ofDelivery = { delivery_id: delivery?.id ?? null };
  const [body] = await rowsOf(database.pool, "bodies", ofDelivery);
  const [open] = await rowsOf(database.pool, "open_deliveries", ofDelivery);
  const waking = await database.pool.query(
    "select payload from graphile_worker._private_jobs where payload::text like '%' || $1 || '%'",
    [delivery?.id ?? "none"],
  );
  return {
    refusal:
      result instanceof PublishRefusedError ? [result.code, result.message.replaceAll(id, "ID")] : null,
    isThatDelivery: "deliveryId" in result && result.deliveryId === delivery?.id,
    status: delivery?.status,
    reason: delivery?.reason,
    isExample: delivery?.is_example,
    event: delivery?.event,
    traceparent: body?.traceparent,
    text: String(body?.analysis).replaceAll(id, "ID"),
    lane: open?.lane,
    bytes: open === undefined ? null : open.body_bytes - id.length,
    wakeAfterMs: open === undefined ? null : open.wake_at.getTime() - open.due_at.getTime(),
    wakings: waking.rows.length,
  };
}

describe("an analysis is published alone as in company", () => {
  test.each<[string, (id: string) => Partial<Asked>, object]>([
    ["new", () => ({}), { status: "pending", isThatDelivery: true, wakings: 1, wakeAfterMs: 15_000 }],
    [
      "of a failure",
      (id) => ({ analysis: `{"id":"${id}","status":"failed"}` }),
      { event: "analysis.failed" },
    ],
    ["with a trace", () => ({ traceparent: TRACE }), { traceparent: TRACE }],
    ["with a trace of another form", () => ({ traceparent: `ff${TRACE}` }), { traceparent: null }],
    ["with a URL", () => ({ webhookUrl: "https://a.example.com/" }), { status: "pending", wakings: 1 }],
    [
      "without a target",
      () => ({ accountId: withoutEndpoint }),
      { status: "abandoned", reason: "no_target" },
    ],
    [
      "that is not good",
      () => ({ analysis: '{"id":7}' }),
      { refusal: ["invalid_analysis", expect.anything()] },
    ],
    [
      "of no account",
      () => ({ accountId: "00000000-0000-7000-8000-000000000000" }),
      { refusal: ["unknown_account", expect.anything()], status: undefined },
    ],
  ])("%s", async (_, change, expected) => {
    const alone = await publishAmid(0, change);
    expect(alone).toMatchObject(expected);
    expect(await publishAmid(1, change)).toEqual(alone);
  });

  test.each([0, 1])("again, beside %i others: the same delivery, or a conflict", async (neighbours) => {
    const id = `again-${neighbours}`;
    await database.pool.query("select sealpost.publish_analysis($1, $2)", [withEndpoint, text(id)]);
    const same = await publishAmid(neighbours, () => ({ analysis: text(id) }));
    expect(same.refusal).toBe(null);
    const other = await publishAmid(neighbours, () => ({ analysis: text(id, { other: "text" }) }));
    expect(other.refusal).toMatchObject([
      "analysis_conflict",
      expect.stringContaining("was already published"),
    ]);
    expect(await rowsOf(database.pool, "deliveries", { analysis_id: id })).toHaveLength(1);
  });

  test("what is not JSON is refused by its index", async () => {
    const publishing = publishAmid(0, () => ({ analysis: "{" }));
    await expect(publishing).rejects.toMatchObject({ code: "invalid_analysis", index: 0 });
  });
});
