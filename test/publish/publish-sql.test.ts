import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { JSON_LEVELS_MAX } from "../../src/http/limits.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { deliveryRow, openRow } from "../support/delivery-rows.ts";
import {
  begin,
  countRows,
  createPipelineRole,
  insertAccount,
  publish,
  publishMany,
  rowsOf,
} from "../support/installation.ts";
import { countJobs, newestPayload } from "../support/wakeup-jobs.ts";

const HOOK = "https://hooks.example.com/in";
let database: TestDatabase;
let accountId: string;

beforeAll(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool);
});
afterAll(() => database.drop());

const count = (table: string) => countRows(database.pool, table);

async function refusal(
  promise: Promise<unknown>,
): Promise<{ code: string; message: string; detail: string; hint: string }> {
  return promise.then(
    () => {
      throw new Error("nothing was refused");
    },
    (error) => error,
  );
}

function analysis(id: string, more = ""): string {
  return `{"id":"${id}","status":"succeeded"${more}}`;
}

/** The analysis itself is the first level. */
function nested(levels: number): string {
  return analysis(`nested-${levels}`, `,"x":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}`);
}

describe("publish_analysis", () => {
  it("stores the analysis, its delivery and its wake-up together", async () => {
    const id = await publish(database.pool, accountId, analysis("whole"), HOOK);
    const { rows } = await database.pool.query(
      `select d.event, d.status, d.run, d.analysis_id, d.webhook_url, o.due_at <= now() as is_due,
         o.lane::text as lane, sealpost.uuid_v7_time(d.id) - now() < interval '1 minute' as is_recent
       from sealpost.deliveries d join sealpost.open_deliveries o on o.delivery_id = d.id where d.id = $1`,
      [id],
    );
    expect(rows).toEqual([
      {
        event: "analysis.succeeded",
        status: "pending",
        run: 1,
        analysis_id: "whole",
        webhook_url: HOOK,
        is_due: true,
        is_recent: true,
        lane: rows[0].lane,
      },
    ]);
    expect(await newestPayload(database.pool)).toEqual({
      ids: [id],
      accounts: [accountId],
      lanes: [rows[0].lane],
    });
  });

  it("leaves nothing behind when the caller's transaction rolls back", async () => {
    const before = [await count("deliveries"), await countJobs(database.pool)];
    const transaction = await begin(database.pool);
    await publish(transaction.client, accountId, analysis("rolled-back"), HOOK);
    await transaction.rollback();
    expect([await count("deliveries"), await countJobs(database.pool)]).toEqual(before);
  });

  it("answers the same delivery when the same is published again, and does nothing", async () => {
    const first = await publish(database.pool, accountId, analysis("again"), HOOK);
    const before = await countJobs(database.pool);
    expect(await publish(database.pool, accountId, analysis("again"), HOOK)).toBe(first);
    expect(await countJobs(database.pool)).toBe(before);
  });

  it("makes one delivery out of twenty connections publishing at once", async () => {
    const ids = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const { Client } = await import("pg").then((module) => module.default);
        const client = new Client({ connectionString: database.url });
        await client.connect();
        const id = await publish(client, accountId, analysis("twenty"), HOOK);
        await client.end();
        return id;
      }),
    );
    expect(new Set(ids).size).toBe(1);
    expect(await countRows(database.pool, "deliveries", { analysis_id: "twenty" })).toBe(1);
  });

  it("keeps one account's ids apart from another's", async () => {
    const other = await insertAccount(database.pool);
    const mine = await publish(database.pool, accountId, analysis("shared-id"), HOOK);
    expect(await publish(database.pool, other, analysis("shared-id"), HOOK)).not.toBe(mine);
  });

  it("ends at once, visibly, when there is no target at all", async () => {
    const id = await publish(database.pool, accountId, analysis("no-target"));
    expect(await deliveryRow(database.pool, id)).toMatchObject({ status: "abandoned", reason: "no_target" });
    expect(await openRow(database.pool, id)).toBeNull();
  });

  it.each([
    ["another text", '{"id":"conflict","status":"succeeded" }', HOOK],
    ["another webhook_url", analysis("conflict"), `${HOOK}/2`],
    ["no webhook_url", analysis("conflict"), null],
  ])("refuses %s under a known id", async (_, text, url) => {
    await publish(database.pool, accountId, analysis("conflict"), HOOK);
    const error = await refusal(publish(database.pool, accountId, text, url));
    expect(error.code).toBe("SP005");
    expect(error.message).toBe(
      'analysis at index 0: "conflict" was already published with another text or webhook_url',
    );
    expect(JSON.parse(error.detail)).toEqual({ index: 0, code: "analysis_conflict" });
  });

  it.each([
    ["an array", "[1]", "SP002", "it is not a JSON object"],
    ["null", "null", "SP002", "it is not a JSON object"],
    ["no id", '{"status":"succeeded"}', "SP002", 'it has no member "id"'],
    ["an id that is a number", '{"id":7,"status":"failed"}', "SP002", 'its "id" is not a string'],
    ["an empty id", '{"id":"","status":"failed"}', "SP002", "1 to 200 characters"],
    ["an id of 201 characters", analysis("x".repeat(201)), "SP002", "1 to 200 characters"],
    ["an id with a slash", analysis("a/b"), "SP002", "1 to 200 characters"],
    ["an id with an escape", '{"id":"\\u0061","status":"failed"}', "SP002", "without escapes"],
    ["an unknown status", '{"id":"s","status":"done"}', "SP002", 'its "status" is neither'],
    ["no status", '{"id":"s"}', "SP002", 'it has no member "status"'],
    ["a status with an escape", '{"id":"s","status":"f\\u0061iled"}', "SP002", "without escapes"],
    ["an escaped second id", '{"id":"s","status":"failed","\\u0069d":"t"}', "SP002", "written with escapes"],
    ["an escaped only status", '{"id":"s","st\\u0061tus":"failed"}', "SP002", "written with escapes"],
    ["too many bytes", analysis("big", `,"x":"${"é".repeat(600_000)}"`), "SP003", "more than the 1048576"],
    ["a level too many", nested(JSON_LEVELS_MAX + 1), "SP002", `more than ${JSON_LEVELS_MAX} levels`],
  ])("refuses %s before anything is stored", async (_, text, state, message) => {
    const before = await count("sealpost.analyses");
    const error = await refusal(publish(database.pool, accountId, text, HOOK));
    expect(error.code).toBe(state);
    expect(error.message).toContain(message);
    expect(error.hint).not.toBe("");
    expect(await count("sealpost.analyses")).toBe(before);
  });

  it("accepts as many levels as the API does, and any number of brackets beside each other or in strings", async () => {
    const deep = nested(JSON_LEVELS_MAX);
    const wide = analysis("wide", `,"x":[${"[],{},".repeat(600)}1],"y":"${'[{\\"'.repeat(600)}"`);
    await publish(database.pool, accountId, deep, HOOK);
    await publish(database.pool, accountId, wide, HOOK);
  });

  it.each([
    ["http", "http://example.com/"],
    ["userinfo", "https://u:p@example.com/"],
    ["a fragment", "https://example.com/#x"],
    ["a control character", "https://example.com/\n"],
    ["a backslash", "https://example.com\\x"],
    ["2,049 characters", `https://example.com/${"x".repeat(2029)}`],
    ["loopback", "https://127.0.0.1/"],
    ["a private literal", "https://192.168.1.1:8443/x"],
    ["an IPv6 loopback", "https://[::1]/"],
    ["localhost", "https://localhost/"],
    ["an internal name", "https://db.internal/"],
    ["a single label", "https://intranet/"],
    ["a mail port", "https://example.com:25/"],
    ["a database's port", "https://example.com:5432/"],
  ])("refuses a webhook_url with %s", async (_, url) => {
    const error = await refusal(publish(database.pool, accountId, analysis("url"), url));
    expect(error.code).toBe("SP004");
    expect(error.message).toMatch(/^analysis at index 0: its webhook_url is refused: /);
  });

  it("refuses an unknown account", async () => {
    const error = await refusal(
      publish(database.pool, "00000000-0000-7000-8000-000000000000", analysis("x"), HOOK),
    );
    expect(error.code).toBe("SP001");
  });

  it("keeps every byte of the text", async () => {
    const text = `{ "id" : "bytes",\n\t"status":"failed", "n":9007199254740993, "n":1e400, "z":"\\u0000\\ud800 é\\/" }`;
    const id = await publish(database.pool, accountId, text, HOOK);
    const { rows } = await database.pool.query(
      "select analysis::text as text from sealpost.bodies where delivery_id = $1",
      [id],
    );
    expect(rows[0].text).toBe(text);
  });
});

describe("publish_analyses", () => {
  it("gives ids in input order, new and known mixed, equal ones once", async () => {
    const known = await publish(database.pool, accountId, analysis("m-known"), HOOK);
    const ids = await publishMany(
      database.pool,
      [accountId, accountId, accountId, accountId],
      [analysis("m-z"), analysis("m-known"), analysis("m-a"), analysis("m-z")],
      [HOOK, HOOK, null, HOOK],
    );
    expect(ids[1]).toBe(known);
    expect(ids[3]).toBe(ids[0]);
    const rows = await rowsOf(database.pool, "deliveries", { id: ids });
    expect(rows.map((row) => [row.id, row.analysis_id, row.status]).sort()).toEqual(
      [
        [ids[2], "m-a", "abandoned"],
        [known, "m-known", "pending"],
        [ids[0], "m-z", "pending"],
      ].sort(),
    );
  });

  it("refuses all when one is bad, and names it by its index", async () => {
    const before = await count("sealpost.analyses");
    const texts = [analysis("b-1"), analysis("b-2"), '{"id":"b-3"}'];
    const error = await refusal(
      publishMany(database.pool, [accountId, accountId, accountId], texts, [HOOK, HOOK, HOOK]),
    );
    expect(error.message).toBe('analysis at index 2: it has no member "status"');
    expect(JSON.parse(error.detail)).toEqual({ index: 2, code: "invalid_analysis" });
    expect(await count("sealpost.analyses")).toBe(before);
  });

  it("refuses two different analyses under one id in one batch", async () => {
    const texts = [analysis("twice"), analysis("twice", ',"x":1')];
    const error = await refusal(publishMany(database.pool, [accountId, accountId], texts, [HOOK, HOOK]));
    expect(error.code).toBe("SP005");
    expect(JSON.parse(error.detail).index).toBe(1);
  });

  it("refuses arrays that do not fit together, and takes empty ones", async () => {
    const error = await refusal(publishMany(database.pool, [accountId], [analysis("f")], []));
    expect(error.code).toBe("SP006");
    expect(await publishMany(database.pool, [], [], [])).toEqual([]);
  });

  it("puts up to 50 deliveries into one job", async () => {
    const before = await countJobs(database.pool);
    const n = 101;
    const texts = Array.from({ length: n }, (_, i) => analysis(`batch-${i}`));
    await publishMany(database.pool, Array(n).fill(accountId), texts, Array(n).fill(HOOK));
    expect(await countJobs(database.pool)).toBe(before + 3);
  });

  it("never deadlocks, whatever the orders in which batches overlap", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uuid(),
        fc.array(fc.shuffledSubarray([0, 1, 2, 3, 4, 5, 6, 7]), { minLength: 4, maxLength: 4 }),
        async (salt, orders) => {
          const results = await Promise.all(
            orders.map((order) =>
              publishMany(
                database.pool,
                order.map(() => accountId),
                order.map((n) => analysis(`${salt}-${n}`)),
                order.map(() => HOOK),
              ),
            ),
          );
          const idOf = new Map<number, string>();
          for (const [k, ids] of results.entries()) {
            for (const [i, id] of ids.entries()) {
              const n = orders[k]![i]!;
              expect(idOf.get(n) ?? id).toBe(id);
              idOf.set(n, id);
            }
          }
        },
      ),
      { numRuns: 30 },
    );
  });
});

describe("the pipeline's role", () => {
  it("needs EXECUTE on two functions and has nothing else", async () => {
    const { role, drop } = await createPipelineRole(database.pool);
    const client = await database.pool.connect();
    try {
      await client.query(`set role ${role}`);
      await publish(client, accountId, analysis("by-role"), HOOK);
      for (const sql of [
        "select * from sealpost.deliveries",
        "select * from sealpost.bodies",
        "select sealpost.publish(array[$$00000000-0000-0000-0000-000000000000$$]::uuid[], null, null, false, now())",
        "select graphile_worker.add_job('deliver')",
        "select sealpost.promote(now(), 1, 1, 1)",
      ]) {
        expect((await refusal(client.query(sql))).code, sql).toBe("42501");
      }
    } finally {
      await client.query("reset role");
      client.release();
      await drop();
    }
  });
});
