import type pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createPool } from "../../../src/base/database/pools.ts";
import { inPipelinedTransaction, type PipelinedTransaction } from "../../../src/base/database/transaction.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../../support/database-proxy.ts";
import { begin } from "../../support/installation.ts";
import { patience } from "../../support/time-limits.ts";

let database: TestDatabase;
let proxy: DatabaseProxy;
let pool: pg.Pool;
/** Every statement that the driver was given, in order. */
let asked: string[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  await database.pool.query("create table public.done (what text primary key)");
});
beforeEach(async () => {
  await database.pool.query("truncate public.done");
  proxy = await startDatabaseProxy(database.url);
  const timeouts = { statementMs: 20_000, answerMs: patience(1_000), connectMs: patience(5_000) };
  const options = { databaseUrl: proxy.url, connectionsMax: 1, applicationName: "test", isPipelined: true };
  pool = createPool({ ...options, onError: () => undefined }, [], timeouts);
  asked = [];
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...args: readonly unknown[]) => unknown;
    const note = (statement: unknown, ...rest: unknown[]) => {
      const text = typeof statement === "string" ? statement : (statement as pg.QueryConfig).text;
      asked.push(text);
      return query(text.startsWith("begin") ? onBegin(text) : statement, ...rest);
    };
    client.query = note as typeof client.query;
  });
  onBegin = (text) => text;
});
afterEach(async () => {
  await pool.end();
  await proxy.close();
});
afterAll(() => database.drop());

/** What is sent in place of BEGIN. */
let onBegin: (text: string) => string;

const insert = (what: string): pg.QueryConfig => ({
  text: "insert into public.done (what) values ($1)",
  values: [what],
});
const done = async () =>
  (await database.pool.query("select what from public.done order by what")).rows.map(({ what }) => what);
const session = async (): Promise<number> => (await pool.query("select pg_backend_pid() as pid")).rows[0].pid;

/** First looks at something, then writes "work", and "last" with its COMMIT. */
function write(change: Partial<PipelinedTransaction<pg.QueryResult, string>> = {}): Promise<string> {
  return inPipelinedTransaction(pool, {
    first: (client) => client.query("select 1 as one"),
    work: async (client) => {
      await client.query(insert("work"));
      return { result: "result", last: insert("last") };
    },
    ...change,
  });
}

describe("what goes well", () => {
  test("is committed, with and without a last statement", async () => {
    const before = await session();
    expect(await write()).toBe("result");
    expect(await done()).toEqual(["last", "work"]);
    const alone = write({
      work: async (client, { rows }) => {
        await client.query(insert("alone"));
        return { result: `${rows[0].one}`, last: null };
      },
    });
    expect(await alone).toBe("1");
    expect(await done()).toEqual(["alone", "last", "work"]);
    expect(await session()).toBe(before);
  });

  test("goes out in three parts, each as soon as the one before it is answered", async () => {
    await session();
    asked = [];
    const sent = proxyHeld();
    const writing = write();
    await sent.has(["begin", "select 1 as one"]);
    await sent.has([insert("work").text]);
    await sent.has([insert("last").text, "commit"]);
    await writing;
  });
});

/** Lets nothing through until it is what was expected to be sent without an answer. */
function proxyHeld() {
  proxy.hold();
  return {
    has: async (statements: readonly string[]) => {
      while (asked.length < statements.length) await new Promise(setImmediate);
      // Whatever else might be sent without an answer would be by now.
      for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
      expect(asked).toEqual(statements);
      asked = [];
      proxy.letGo();
      proxy.hold();
      await new Promise(setImmediate);
    },
  };
}

describe("a BEGIN that fails", () => {
  test("lets nothing behind it take effect, and the connection go", async () => {
    const before = await session();
    onBegin = () => "select nothing";
    await expect(write()).rejects.toMatchObject({ code: "42703" });
    onBegin = (text) => text;
    expect(await session()).not.toBe(before);
    expect(await done()).toEqual([]);
  });

  test("is what is thrown, also where `first` fails with it or would do more", async () => {
    onBegin = () => "select nothing";
    const first = async (client: pg.ClientBase) => {
      await client.query("select 1");
      return await client.query(insert("first"));
    };
    await expect(write({ first })).rejects.toMatchObject({ code: "42703" });
    expect(await done()).toEqual([]);
    await expect(write({ first: () => Promise.reject(new Error("no")) })).rejects.toMatchObject({
      code: "42703",
    });
  });
});

describe("the error that is thrown", () => {
  test.each<[string, Partial<PipelinedTransaction<pg.QueryResult, string>>, object]>([
    ["the first statement's", { first: (client) => client.query("select nothing") }, { code: "42703" }],
    ["that of `first` itself", { first: () => Promise.reject(new Error("mine")) }, { message: "mine" }],
    ["the work's", { work: () => Promise.reject(new Error("mine")) }, { message: "mine" }],
    [
      "the last statement's, where COMMIT only says ROLLBACK",
      {
        work: async (client) => {
          await client.query(insert("same"));
          return { result: "", last: insert("same") };
        },
      },
      { code: "23505" },
    ],
    [
      "the driver's, where it cannot send the last statement",
      {
        work: async (client) => {
          const values = [
            {
              toPostgres: () => {
                throw new Error("unsendable");
              },
            },
          ];
          await client.query(insert("work"));
          return { result: "", last: { ...insert(""), values } };
        },
      },
      { message: "unsendable" },
    ],
    [
      "the driver's, where it does not take the last statement",
      {
        work: async (client) => {
          await client.query(insert("work"));
          return { result: "", last: { text: "select 1", values: "none" } as unknown as pg.QueryConfig };
        },
      },
      { message: "Query values must be an array" },
    ],
    [
      "one about COMMIT, where a failed statement was passed over",
      {
        work: async (client) => {
          await client.query("select nothing").catch(() => undefined);
          return { result: "", last: null };
        },
      },
      { message: expect.stringContaining("COMMIT rolled back") },
    ],
  ])("is %s; nothing is stored, and the connection is kept", async (_, change, error) => {
    const before = await session();
    await expect(write(change)).rejects.toMatchObject(error);
    expect(await done()).toEqual([]);
    expect(await session()).toBe(before);
    await write();
    expect(await done()).toEqual(["last", "work"]);
  });

  test("is COMMIT's, where a deferred constraint is not met", async () => {
    await database.pool.query(
      "create table public.pairs (what text references public.done deferrable initially deferred)",
    );
    const last = { text: "insert into public.pairs values ('missing')" };
    await expect(write({ work: async () => ({ result: "", last }) })).rejects.toMatchObject({
      code: "23503",
    });
    await database.pool.query("drop table public.pairs");
  });

  test.each(["work", "last"])("says that a lock was waited for too long, in %s", async (where) => {
    const holder = await begin(database.pool);
    await holder.client.query(insert("held"));
    const work = async (client: pg.ClientBase) => {
      if (where === "work") await client.query(insert("held"));
      return { result: "", last: insert("held") };
    };
    const first = async (client: pg.ClientBase) => client.query("set local lock_timeout = 20");
    await expect(write({ first, work })).rejects.toMatchObject({ code: "55P03" });
    await holder.rollback();
    expect(await done()).toEqual([]);
  });
});

describe("a connection", () => {
  test.each<[string, Partial<PipelinedTransaction<pg.QueryResult, string>>]>([
    ["with BEGIN", { first: hanging }],
    ["in between", { work: hanging as never }],
    ["with COMMIT", { work: async () => hangingWith({ result: "", last: insert("last") }) }],
  ])("that hangs %s is given up, and the next one is another", async (_, change) => {
    await session();
    await expect(write(change)).rejects.toThrow(/Query read timeout|Connection terminated/);
    await proxy.restore();
    expect(await write()).toBe("result");
  });

  test.each([
    ["with the first statement", { first: cutting }],
    ["with the last", { work: async () => ({ result: "", last: { text: CUT } }) }],
  ])("that is cut %s is given up at once", async (_, change) => {
    const before = await session();
    await expect(write(change)).rejects.toMatchObject({ code: "57P01" });
    expect(await session()).not.toBe(before);
    expect(await done()).toEqual([]);
  });
});

function hanging(client: pg.ClientBase): Promise<pg.QueryResult> {
  proxy.hang();
  return client.query("select 1");
}
function hangingWith<T>(result: T): T {
  proxy.hang();
  return result;
}

const CUT = "select pg_terminate_backend(pg_backend_pid())";
function cutting(client: pg.ClientBase): Promise<pg.QueryResult> {
  return client.query(CUT);
}
