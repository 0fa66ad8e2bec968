-- The schema, its clock-ordered ids, and the few settings that SQL itself must know.
-- Forward only: a file that has been applied anywhere is never edited, a later file changes what it made.

create schema if not exists sealpost;
revoke all on schema sealpost from public;

-- Small functions that call nothing but pg_catalog have no SET clause: it would keep SQL ones from being inlined, and
-- costs more than they do. Whoever calls them from a SECURITY DEFINER function has set its search_path.

-- UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, 12 bits of the millisecond's fraction (so that ids made one after
-- the other sort roughly by time), the rest random. PostgreSQL 18 has uuidv7(), 15 to 17 do not.
--
-- In two steps, because the first costs three times as much as the second, and many ids are of one moment. The random
-- part is a version 4's, whose two variant bits are those of version 7.
create function sealpost.uuid_v7_prefix(at timestamptz) returns bytea
language sql immutable parallel safe
as $$
  select substring(int8send(micros / 1000) from 3)
    || substring(int4send((x'7000'::int | ((micros % 1000) * 4096 / 1000)::int)) from 3)
  from (select (extract(epoch from at) * 1000000)::bigint as micros) as moment
$$;
create function sealpost.uuid_v7_of(prefix bytea) returns uuid
language sql volatile parallel safe
as $$
  select encode(overlay(uuid_send(gen_random_uuid()) placing prefix from 1), 'hex')::uuid
$$;
create function sealpost.uuid_v7(at timestamptz default clock_timestamp()) returns uuid
language sql volatile parallel safe
as $$
  select sealpost.uuid_v7_of(sealpost.uuid_v7_prefix(at))
$$;

-- The smallest UUIDv7 of a moment: the bound of a partition, of a time filter, of a retention sweep.
create function sealpost.uuid_v7_floor(at timestamptz) returns uuid
language sql immutable parallel safe
as $$
  select encode(
    substring(int8send(floor(extract(epoch from at) * 1000)::bigint) from 3) || '\x70008000000000000000'::bytea,
    'hex')::uuid
$$;

-- When a UUIDv7 was made, to the millisecond: a delivery's created_at is read from its id and stored nowhere else.
create function sealpost.uuid_v7_time(id uuid) returns timestamptz
language sql immutable parallel safe
as $$
  select to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$$;

-- One row. `migrate` writes what the configuration says; the publishing function reads it.
create table sealpost.settings (
  only_row boolean primary key default true check (only_row),
  analysis_bytes_max integer not null default 1048576 check (analysis_bytes_max > 0),
  -- host:port or *.name:port; empty everywhere but in development
  unsafe_allowed_targets text[] not null default '{}'
);
insert into sealpost.settings default values;
