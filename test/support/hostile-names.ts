// What a neighbour in the database can put in our way: under every name that our SQL uses, functions, operators,
// aggregates, views and types that PostgreSQL would prefer if it searched their schema.
import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type pg from "pg";

const root = fileURLToPath(new URL("../..", import.meta.url));
const TEXTS = [
  "sql/**/*.sql",
  "src/{store,workspace/store}/*.ts",
  "node_modules/graphile-worker/sql/*.sql",
  "node_modules/graphile-worker/dist/**/*.js",
  "node_modules/rate-limiter-flexible/lib/RateLimiterPostgres.js",
];

/** Every word of our SQL and of the packages' that reach the database; more does no harm. */
function readWords(): string[] {
  const words = globSync(TEXTS, { cwd: root }).flatMap((path) => [
    ...(readFileSync(`${root}/${path}`, "utf8").match(/\b[a-z_][a-z_0-9]*\b/g) ?? []),
  ]);
  return [...new Set(words)];
}

/** Operands that a literal or a column of ours may have: what fits one of them exactly is preferred. */
const OPERANDS =
  "integer bigint numeric float8 text varchar uuid json jsonb boolean timestamptz interval date bytea text[] uuid[]";
const OPERATORS = "= <> < <= > >= + - * / % || -> ->> #>> ~ ~* !~ !~* ~~ !~~ << <<= & @>";

/** Whatever is called leaves its number in `public.called`, which no rollback takes back, and raises its name. */
const PLANT = `
create temp table words as select unnest($words$WORDS$words$::text[]) as word;
create temp table operands as select unnest('{OPERANDS}'::text[]) as type;
create sequence public.called;
grant all on sequence public.called to public;
create table public.planted (n integer generated always as identity, name text);
do $plant$
declare
  body text;
  made record;
  n integer;
begin
  create function public.trip(n integer) returns boolean language plpgsql as
    'begin perform pg_catalog.setval(''public.called'', n::pg_catalog.int8);
      raise exception ''hostile object % was called'', n; end';
  for made in
    -- 1. The very functions that there are: preferred where public comes before pg_catalog.
    select 'function' as kind, proname as name, array(
        select format_type(t, null) from unnest(proargtypes::oid[]) with ordinality as a (t, i) order by i) as args,
      case when proretset then 'setof ' else '' end || format_type(prorettype, null) as result
    from pg_proc join words on word = proname
    where pronamespace = 'pg_catalog'::regnamespace and prokind = 'f' and pronargs < 5
      and not proargtypes::oid[] && array['internal'::regtype, 'cstring'::regtype]::oid[]
    union
    -- 2. Functions that fit the operands better than what there is: preferred wherever they are searched at all.
    select 'function', p.proname, array[one.type] || case when p.pronargs > 1 then array[other.type] else '{}' end,
      case when p.rettype in ('bigint', 'integer', 'boolean', 'json', 'uuid', 'bytea', 'timestamp with time zone')
        then p.rettype else 'text' end
    from (
      select proname, pronargs, min(format_type(prorettype, null)) as rettype from pg_proc join words on word = proname
      where pronamespace = 'pg_catalog'::regnamespace and prokind = 'f' and pronargs in (1, 2) and not proretset
        and proname !~ '^(uuid|int[248]|text|bool|date|interval|timestamp|json|numeric|float|bytea|array|pg)_?'
      group by 1, 2
    ) as p cross join operands as one cross join operands as other
    where p.pronargs = 2 or one.type = other.type
    union
    -- 3. Polymorphic and variadic ones, for exactly our arrays and rows.
    select 'function', f, array[type],
      case f when 'unnest' then 'setof text' when 'cardinality' then 'integer' else 'json' end
    from unnest('{unnest,cardinality,json_build_object,json_build_array,to_json,row_to_json,format}'::text[]) as f,
      operands
    union
    select 'function', f, array_fill('text'::text, array[k]), 'text'
    from unnest('{json_build_object,json_build_array,format,concat}'::text[]) as f, generate_series(1, 8) as k
    union
    select 'aggregate', p.proname, array[type], null
    from (select distinct proname from pg_proc join words on word = proname where prokind = 'a') as p, operands
    union
    select 'operator', o, array[one.type, other.type],
      case when o ~ '[=<>~]' and o !~ '[-#]|<<$' then 'boolean' else one.type end
    from unnest(string_to_array('OPERATORS', ' ')) as o, operands as one, operands as other
    union
    -- Tables of ours, and of the catalog.
    select 'view', word, '{}', null from words where word in (OURS) or word in (
      select relname from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind in ('r', 'v'))
    union
    select 'domain', typname, '{}', null from pg_type join words on word = typname
    where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r')
  loop
    begin
      insert into public.planted (name)
        values (made.kind || ' ' || made.name || '(' || array_to_string(made.args, ', ') || ')')
        returning planted.n into n;
      body := format('begin perform public.trip(%s); return; end', n);
      if coalesce(made.result, '') not like 'setof%' then
        body := format('begin perform public.trip(%s); return null; end', n);
      end if;
      if made.kind = 'function' then
        execute format('create function public.%I(%s) returns %s language plpgsql as %L',
          made.name, array_to_string(made.args, ', '), made.result, body);
      elsif made.kind = 'operator' then
        execute format('create function public.%I(%s) returns %s language plpgsql as %L',
          'operator_' || n, array_to_string(made.args, ', '), made.result, body);
        execute format('create operator public.%s (function = public.%I, leftarg = %s, rightarg = %s)',
          made.name, 'operator_' || n, made.args[1], made.args[2]);
      elsif made.kind = 'aggregate' then
        execute format('create function public.%I(bigint, %s) returns bigint language plpgsql as %L',
          'step_' || n, made.args[1], body);
        execute format('create aggregate public.%I(%s) (sfunc = public.%I, stype = bigint)',
          made.name, made.args[1], 'step_' || n);
      elsif made.kind = 'view' then
        execute format('create view public.%I as select public.trip(%s) as id', made.name, n);
      else
        execute format('create domain public.%I as text check (public.trip(%s))', made.name, n);
      end if;
    exception
      -- Not everything can be: two names for one thing, a result that needs other arguments.
      when others then null;
    end;
  end loop;
  create function public.step(bigint) returns bigint language plpgsql as 'begin perform public.trip(0); return 0; end';
  create aggregate public.count(*) (sfunc = public.step, stype = bigint);
end
$plant$;
grant select on public.planted to public;
`;

const OUR_TABLES =
  "accounts analyses api_keys attempts audit_log bodies deliveries endpoints idempotency_keys leader migrations " +
  "open_deliveries rate_limits replay_items replays settings signing_secrets announcing migration_lock " +
  "quarantine_lock _private_jobs _private_tasks _private_job_queues";

/** Puts them into `public`. Returns how many there are. */
export async function plantHostileNames(client: pg.Client): Promise<number> {
  const plant = PLANT.replace("WORDS", `{${readWords().join(",")}}`)
    .replace("OPERANDS", OPERANDS.replaceAll(" ", ","))
    .replace("OPERATORS", OPERATORS)
    .replace(
      "OURS",
      OUR_TABLES.split(" ")
        .map((name) => `'${name}'`)
        .join(","),
    );
  await client.query(plant);
  const { rows } = await client.query(
    `select (select count(*) from pg_proc where pronamespace = 'public'::regnamespace)
       + (select count(*) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'v')
       + (select count(*) from pg_type where typnamespace = 'public'::regnamespace and typtype = 'd')
       + (select count(*) from pg_operator where oprnamespace = 'public'::regnamespace) as n`,
  );
  return Number(rows[0].n);
}

/** What was called last; null: nothing ever was. Seen by a connection that searches pg_catalog alone. */
export async function findCalled(client: pg.Client): Promise<string | null> {
  const { rows } = await client.query<{ name: string }>(
    `select coalesce(name, 'count(*)') as name
     from public.called left join public.planted on n = last_value where is_called`,
  );
  return rows[0]?.name ?? null;
}
