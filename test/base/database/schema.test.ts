// sql/schema.sql: what migrate makes of an empty database, to be read, and to be seen changing in a review. From the
// catalog and not by pg_dump: whoever has Node and npm has no pg_dump, a Debian's refuses a newer server, and its dump
// is another with every version.
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { createTestDatabase } from "../../support/database.ts";

const SQL = fileURLToPath(new URL("../../../sql", import.meta.url));

const HEAD = `-- What the files beside this one make of an empty database: for reading, never run. Without partitions by
-- the day, and without functions' texts: each names the file that has it. Written by
-- npx vitest run test/base/database/schema.test.ts -u`;

const ours = (schema: string) => `${schema} in ('sealpost'::regnamespace, 'workspace'::regnamespace)`;

const TYPES = `
select format('create type %s as (%s);', c.oid::regclass, string_agg(
  format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' order by attnum)) as text
from pg_class as c join pg_attribute on attrelid = c.oid
where ${ours("relnamespace")} and relkind = 'c' group by c.oid
union all
select format('create sequence %s;', oid::regclass) from pg_class where ${ours("relnamespace")} and relkind = 'S'
order by 1`;

/** Each with its constraints, and followed by its indexes and triggers. */
const TABLES = `
select concat_ws(E'\\n',
  format('create %stable %s (', case relpersistence when 'u' then 'unlogged ' end, c.oid::regclass),
  nullif(concat_ws(E',\\n', (
    select string_agg(concat_ws(' ', format('  %I', attname), format_type(atttypid, atttypmod),
      case when attstorage <> typstorage then 'storage plain' end,
      case when attcollation <> typcollation then 'collate ' || attcollation::regcollation end,
      'default ' || pg_get_expr(adbin, adrelid), case when attnotnull then 'not null' end), E',\\n' order by attnum)
    from pg_attribute join pg_type as t on t.oid = atttypid
    left join pg_attrdef on adrelid = attrelid and adnum = attnum
    where attrelid = c.oid and attnum > 0 and not attisdropped
  ), (
    select string_agg(format('  constraint %I %s', conname, pg_get_constraintdef(oid)), E',\\n'
      order by contype <> 'p', contype, conname)
    from pg_constraint where conrelid = c.oid and contype in ('p', 'u', 'f', 'c')
  )), ''),
  concat_ws(' ', ')', 'partition by ' || pg_get_partkeydef(c.oid),
    'with (' || array_to_string(reloptions, ', ') || ')') || ';',
  (select string_agg(pg_get_indexdef(indexrelid) || ';', E'\\n' order by pg_get_indexdef(indexrelid) collate "C")
   from pg_index as i
   where indrelid = c.oid and not exists (select from pg_constraint where conindid = i.indexrelid)),
  (select string_agg(pg_get_triggerdef(oid) || ';', E'\\n' order by tgname)
   from pg_trigger where tgrelid = c.oid and not tgisinternal)) as text
from pg_class as c where ${ours("relnamespace")} and relkind in ('r', 'p') and not relispartition
order by relnamespace, relname collate "C"`;

/** What is ours of graphile-worker's tables. */
const ELSEWHERE = `
select format('alter table %s set (%s);', oid::regclass, array_to_string(reloptions, ', ')) as text
from pg_class where relnamespace = 'graphile_worker'::regnamespace and reloptions is not null
union all
select pg_get_triggerdef(t.oid) || ';'
from pg_trigger as t join pg_class as c on c.oid = tgrelid join pg_proc as p on p.oid = tgfoid
where relnamespace = 'graphile_worker'::regnamespace and ${ours("pronamespace")} and not tgisinternal
order by 1`;

const FUNCTIONS = `
select oid::regproc::text as name,
  format('function %s(%s) returns %s', oid::regproc, pg_get_function_arguments(oid), pg_get_function_result(oid))
    || E'\\n  ' || concat_ws(', ', (select lanname from pg_language as l where l.oid = prolang),
      case provolatile when 'i' then 'immutable' when 's' then 'stable' end,
      case proparallel when 's' then 'parallel safe' end,
      case when prosecdef then 'security definer' end, array_to_string(proconfig, ', '),
      case when has_function_privilege('public', oid, 'execute') then 'for everybody' end) as text
from pg_proc where ${ours("pronamespace")} order by pronamespace, oid::regprocedure::text collate "C"`;

test("sql/schema.sql is what migrate makes (npx vitest run test/base/database/schema.test.ts -u)", async () => {
  const { pool, drop } = await createTestDatabase();
  onTestFinished(drop);
  const client = await pool.connect();
  // Every name with its schema.
  await client.query("set search_path = pg_catalog");
  const ask = async (text: string) => (await client.query<{ text: string; name: string }>(text)).rows;
  const files = await readFilesOfFunctions();
  const functions = (await ask(FUNCTIONS)).map(({ name, text }) => `${text}, ${files.get(name)}`);
  const others = [await ask(TYPES), await ask(TABLES), await ask(ELSEWHERE)].flat().map(({ text }) => text);
  client.release();
  const text = `${[HEAD, ...others, functions.join("\n")].join("\n\n")}\n`;
  const short = text.replaceAll("timestamp with time zone", "timestamptz").replaceAll("::text", "");
  await expect(short).toMatchFileSnapshot(join(SQL, "schema.sql"));
});

/** The file that made each last, by its name. */
async function readFilesOfFunctions(): Promise<ReadonlyMap<string, string>> {
  const found = (await readdir(SQL, { recursive: true }))
    .filter((name) => /\d{4}_\w+\.sql$/.test(name))
    .sort();
  const made = found.map(async (file) => {
    const names = (await readFile(join(SQL, file), "utf8")).matchAll(
      /^create (?:or replace )?function (\S+)\(/gm,
    );
    return [...names].map(([, name = ""]) => [name, file] as const);
  });
  return new Map((await Promise.all(made)).flat());
}
