import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PARTITIONED_TABLES } from "../../../src/base/model/installation.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";

/**
 * Without a search_path of their own, because it costs them some microseconds of a publication each: whoever calls them
 * has set it. What that rests on is tested below.
 */
const INHERITING = ["read_analysis", "webhook_url_fault", "without_escapes"];

type Row = {
  name: string;
  text: string;
  is_bound: boolean;
  sets_search_path: boolean;
  is_definer: boolean;
  is_trigger: boolean;
  callers: string[] | null;
  is_depended_on: boolean;
};

let database: TestDatabase;
let functions: readonly Row[];

beforeAll(async () => {
  database = await createTestDatabase();
  const { rows } = await database.pool.query<Row>(
    `select proname as name, prosrc as text, prosqlbody is not null as is_bound,
       'search_path=pg_catalog, pg_temp' = any (coalesce(proconfig, '{}')) as sets_search_path,
       prosecdef as is_definer, prorettype = 'trigger'::regtype as is_trigger,
       (select array_agg(grantee::regrole::text) from aclexplode(coalesce(proacl, acldefault('f', proowner)))
        where grantee <> proowner) as callers,
       exists (select from pg_depend where refclassid = 'pg_proc'::regclass and refobjid = p.oid) as is_depended_on
     from pg_proc as p where pronamespace = 'sealpost'::regnamespace order by 1`,
  );
  functions = rows;
});
afterAll(() => database.drop());

it("our functions may be called by nobody but the owner", () => {
  const open = functions.filter(({ callers }) => callers !== null);
  expect(open.map(({ name }) => name)).toEqual([]);
});

describe("the names in our functions", () => {
  it("are bound when they are made, or looked up where we say", () => {
    expect(functions.length).toBeGreaterThan(20);
    const others = functions.filter((one) => !one.is_bound && !one.sets_search_path);
    expect(others.map(({ name }) => name)).toEqual(INHERITING);
  });

  it("are looked up where we say in all that runs with the owner's rights, and in all triggers", () => {
    const entries = functions.filter((one) => one.is_definer || one.is_trigger);
    expect(entries.map(({ name }) => name)).toEqual([
      "announce_wakeups",
      "keep_task",
      "note_late_attempt",
      "publish_analyses",
      "publish_analysis",
    ]);
    expect(entries.filter((one) => !one.sets_search_path)).toEqual([]);
  });

  it.each(INHERITING)(
    "are looked up where the caller says in %s, which only functions that say it call",
    (name) => {
      const found = functions.find((one) => one.name === name)!;
      expect(found, "nobody but the owner, no default and no constraint").toMatchObject({
        callers: null,
        is_depended_on: false,
      });
      const calling = functions.filter((one) => new RegExp(`sealpost\\.${name}\\(`).test(one.text));
      expect(calling.length).toBeGreaterThan(0);
      expect(calling.filter((one) => !one.sets_search_path && !INHERITING.includes(one.name))).toEqual([]);
    },
  );
});

describe("the time in an id", () => {
  it("is read without a call, and to the microsecond", async () => {
    const { rows: plan } = await database.pool.query("explain verbose select sealpost.uuid_v7_prefix(now())");
    expect(JSON.stringify(plan)).not.toContain("uuid_v7_prefix");
    const { rows } = await database.pool.query<{ prefix: string; at: string }>(
      `select encode(sealpost.uuid_v7_prefix(at), 'hex') as prefix, (extract(epoch from at) * 1000000)::bigint as at
       from (select timestamptz '1970-01-01 00:00Z' + n * interval '12345678901.234567 milliseconds' as at
         from generate_series(0, 150) as n) as times`,
    );
    for (const { prefix, at } of rows) {
      const [ms, us] = [BigInt(at) / 1000n, BigInt(at) % 1000n];
      const expected = `${ms.toString(16).padStart(12, "0")}${(0x7000n | ((us * 4096n) / 1000n)).toString(16)}`;
      expect(prefix).toBe(expected);
    }
  });
});

/** Whether a statement locks or changes rows, and reads partitions by what it has found. */
function readsPartitionsBesideLocks(statement: string): boolean {
  const relations = new Set(statement.match(/\b(?:from|join|using|update) (?:sealpost|workspace)\.\w+/g));
  const locks = /\bfor (?:no key )?(?:update|share)\b|\b(?:update|delete from) (?:sealpost|workspace)\./;
  return (
    relations.size > 1 &&
    locks.test(statement) &&
    new RegExp(`\\bsealpost\\.(?:${PARTITIONED_TABLES.join("|")})\\b`).test(statement)
  );
}

/** Those of which it is known why they may. */
const MAY = {
  close_own_url: "the partition is chosen before it begins, by the id that it is given",
  count_activity: "no partition is left out by a time",
  promote: "another statement has locked the rows, and nobody changes them meanwhile",
};

describe("no statement chooses partitions beside the rows that it locks (UNPRUNED)", () => {
  it("in our functions", async () => {
    const { rows } = await database.pool.query<{ name: string; text: string }>(
      `select proname as name, prosrc as text from pg_proc
       where pronamespace in ('sealpost'::regnamespace, 'workspace'::regnamespace) and prosqlbody is null
         and 'enable_partition_pruning=off' <> all (coalesce(proconfig, '{}'))`,
    );
    const wrong = rows.filter(({ text }) =>
      text.replaceAll(/--.*/g, "").split(/;\n/).some(readsPartitionsBesideLocks),
    );
    expect(wrong.map(({ name }) => name).sort()).toEqual(Object.keys(MAY));
  });

  it("in our programs", async () => {
    const src = fileURLToPath(new URL("../../../src", import.meta.url));
    const paths = (await readdir(src, { recursive: true })).filter((path) => path.endsWith(".ts"));
    const wrong: string[] = [];
    for (const path of paths) {
      const text = await readFile(join(src, path), "utf8");
      const statements = text.match(/`[^`]*`/g) ?? [];
      if (!/UNPRUNED|partition_pruning/.test(text) && statements.some(readsPartitionsBesideLocks))
        wrong.push(path);
    }
    expect(paths.length).toBeGreaterThan(100);
    expect(wrong).toEqual([]);
  });
});
