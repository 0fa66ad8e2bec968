import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { createPipelineRole, insertAccount, publish, publishMany, rowOf } from "../support/installation.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";

// Pipelines are other people's programs: what they do to their session or put into arrays is theirs.

const HOOK = "https://hooks.example.com/in";
let database: TestDatabase;
let accountId: string;
let pipeline: Awaited<ReturnType<typeof createPipelineRole>>;
const clients: pg.Client[] = [];
let published = 0;

beforeAll(async () => {
  database = await createTestDatabase();
  accountId = await insertAccount(database.pool);
  pipeline = await createPipelineRole(database.pool);
});
afterAll(async () => {
  await pipeline.drop();
  await database.drop();
});
beforeEach(() => takeWakeups(database.pool));
afterEach(async () => {
  for (const client of clients.splice(0)) await client.end();
});

/** A session of the pipeline's, with the pipeline's rights. */
async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query(`set role ${pipeline.role}`);
  clients.push(client);
  return client;
}

const analysis = (id: string, more = "") => `{"id":"${id}","status":"succeeded"${more}}`;
const next = () => `caller-${published++}`;
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "nothing was refused",
    (error: { code: string }) => error.code,
  );

async function rowsOf(analysisId: string) {
  const { rows } = await database.pool.query<{ id: string; is_open: boolean; traceparent: string | null }>(
    `select d.id, o.delivery_id is not null as is_open, b.traceparent
     from sealpost.deliveries d join sealpost.bodies b on b.delivery_id = d.id
     left join sealpost.open_deliveries o on o.delivery_id = d.id where d.analysis_id = $1`,
    [analysisId],
  );
  return rows;
}

describe("a session of any kind", () => {
  it("publishes with backslashes read the old way, and what is refused is still refused", async () => {
    const client = await connect();
    await client.query("set standard_conforming_strings = off");
    const id = next();
    await publish(client, accountId, analysis(id, ',"x":"\\u0000"'), HOOK);
    expect(await rowsOf(id)).toHaveLength(1);
    const hidden = `{"id":"${next()}","status":"failed","\\u0069d":"other"}`;
    expect(await codeOf(publish(client, accountId, hidden, HOOK))).toBe("SP002");
    expect(await codeOf(publish(client, accountId, analysis(next()), "https://a.example.com\\b/"))).toBe(
      "SP004",
    );
  });

  it("cannot put its own tables and functions in the place of ours", async () => {
    const client = await connect();
    await client.query(`
      create temp table accounts (id uuid);
      create temp table analyses (account_id uuid, id text, delivery_id uuid, digest bytea);
      create function pg_temp.now() returns timestamptz language sql as $$ select '2000-01-01'::timestamptz $$;
      create function pg_temp.octet_length(text) returns integer language sql as $$ select -1 $$;
      create function pg_temp.sha256(bytea) returns bytea language sql as $$ select $1 $$;
      set search_path = pg_temp, pg_catalog`);
    const id = next();
    const deliveryId = await publish(client, accountId, analysis(id), HOOK);
    expect(await rowsOf(id)).toMatchObject([{ id: deliveryId, is_open: true }]);
    expect((await rowOf(database.pool, "analyses", { delivery_id: deliveryId })).digest).toHaveLength(32);
  });

  it("needs no right to anything that publishing does at the commit", async () => {
    const functions = "pg_notify(text, text)";
    await database.pool.query(`revoke execute on function ${functions} from public`);
    try {
      const client = await connect();
      await client.query("begin");
      const deliveryId = await publish(client, accountId, analysis(next()), HOOK);
      await client.query("commit");
      expect((await takeWakeups(database.pool)).ids).toEqual([deliveryId]);
    } finally {
      await database.pool.query(`grant execute on function ${functions} to public`);
    }
  });

  it("cannot put anything but a trace parent into the webhook's headers", async () => {
    const client = await connect();
    const trace = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    const bad = [
      `${trace}\r\nx-evil: 1`,
      `${trace}\n`,
      trace.toUpperCase(),
      `ff${trace.slice(2)}`,
      "x".repeat(9_999),
    ];
    for (const [given, kept] of [[trace, trace], ...bad.map((text) => [text, null])]) {
      await client.query("select set_config('sealpost.traceparent', $1, false)", [given]);
      const id = next();
      await publish(client, accountId, analysis(id), HOOK);
      expect((await rowsOf(id))[0]!.traceparent, JSON.stringify(given).slice(0, 60)).toBe(kept);
    }
  });

  it.each(["repeatable read", "serializable"])(
    "publishes under %s, and is told to try again where it cannot see what is known",
    async (level) => {
      const [first, second] = [await connect(), await connect()];
      for (const client of [first, second]) {
        await client.query(`begin isolation level ${level}`);
        await client.query("select 1");
      }
      const id = next();
      const delivery = await publish(first, accountId, analysis(id), HOOK);
      const refused = codeOf(publish(second, accountId, analysis(id), HOOK));
      await first.query("commit");
      expect(await refused).toBe("40001");
      await second.query("rollback");
      await second.query(`begin isolation level ${level}`);
      expect(await publish(second, accountId, analysis(id), HOOK)).toBe(delivery);
      await publish(second, accountId, analysis(next()), HOOK);
      await second.query("commit");
    },
  );

  it("takes back to a savepoint what it published since, and may publish it otherwise", async () => {
    const client = await connect();
    const id = next();
    await client.query("begin; savepoint before");
    await publish(client, accountId, analysis(id), HOOK);
    await client.query("rollback to savepoint before");
    const delivery = await publish(client, accountId, analysis(id, ',"other":true'), HOOK);
    await client.query("commit");
    expect(await rowsOf(id)).toMatchObject([{ id: delivery, is_open: true }]);
    expect((await takeWakeups(database.pool)).ids).toEqual([delivery]);
  });

  it("leaves nothing of a statement that was cut in its middle", async () => {
    const [holder, client] = [await connect(), await connect()];
    const [held, free] = [next(), next()];
    await holder.query("begin");
    await publish(holder, accountId, analysis(held), HOOK);
    await client.query("set statement_timeout = '200ms'");
    const both = publishMany(client, [accountId, accountId], [analysis(free), analysis(held)], [HOOK, HOOK]);
    expect(await codeOf(both)).toBe("57014");
    await holder.query("rollback");
    expect([...(await rowsOf(held)), ...(await rowsOf(free))]).toEqual([]);
    expect((await takeWakeups(database.pool)).ids).toEqual([]);
  });
});

describe("arrays of any kind", () => {
  it("count from wherever they like, in as many dimensions as they like", async () => {
    const client = await connect();
    const ids = [next(), next(), next(), next()];
    const { rows } = await client.query<{ ids: string[] }>(
      `select sealpost.publish_analyses(
         array_fill($1::uuid, array[2, 2], array[7, -3]), $2::json[], '[0:3]={NULL,NULL,${HOOK},NULL}'::text[]) as ids`,
      [accountId, [ids.slice(0, 2), ids.slice(2)].map((pair) => pair.map((id) => analysis(id)))],
    );
    expect(rows[0]!.ids).toHaveLength(4);
    for (const [n, id] of ids.entries()) {
      expect(await rowsOf(id)).toMatchObject([{ id: rows[0]!.ids[n], is_open: n === 2 }]);
    }
  });

  it.each([
    ["an account", "array[$1, null]::uuid[], array[$2, $2]::json[], array[null, null]::text[]", "SP001"],
    ["an analysis", "array[$1, $1]::uuid[], array[$2, null]::json[], array[null, null]::text[]", "SP002"],
    ["all accounts", "null, array[$2]::json[], array[$1]::text[]", "SP006"],
    ["all analyses", "array[$1]::uuid[], null, array[$2]::text[]", "SP006"],
  ])("without %s are refused", async (_, given, code) => {
    const client = await connect();
    const asked = client.query(`select sealpost.publish_analyses(${given})`, [accountId, analysis(next())]);
    expect(await codeOf(asked)).toBe(code);
  });

  it("of thousands are published again about as fast as for the first time", async () => {
    const client = await connect();
    // What follows is planned while there is next to nothing.
    const one = analysis(next());
    for (let n = 0; n < 2; n++) await publish(client, accountId, one, HOOK);
    const texts = Array.from({ length: 6_000 }, () => analysis(next()));
    const accounts = texts.map(() => accountId);
    const hooks = texts.map(() => HOOK);
    await client.query("set statement_timeout = '5s'");
    const ids = await publishMany(client, accounts, texts, hooks);
    expect(await publishMany(client, accounts, texts, hooks)).toEqual(ids);
  });
});

describe("analyses of any shape", () => {
  it("are looked through in no time, up to the last level", async () => {
    const client = await connect();
    await client.query("set statement_timeout = '2s'");
    const deep = `${"[".repeat(511)}${"]".repeat(511)}`;
    await publish(
      client,
      accountId,
      analysis(next(), `,"x":[${`${deep.slice(1, -1)},`.repeat(900)}1]`),
      HOOK,
    );
    const tooDeep = analysis(next(), `,"x":[${`${deep.slice(1, -1)},`.repeat(900)}${deep}]`);
    expect(await codeOf(publish(client, accountId, tooDeep, HOOK))).toBe("SP002");
    const abyss = analysis(next(), `,"x":${"[".repeat(5_000)}${"]".repeat(5_000)}`);
    expect(await codeOf(publish(client, accountId, abyss, HOOK))).toBe("SP002");
  });
});
