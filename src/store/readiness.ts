import pg, { type Pool } from "pg";

const FIND = `
select
  current_setting('transaction_read_only') = 'on' as is_read_only,
  array(
    select wanted from unnest($1::text[]) as wanted
    where not exists (select from sealpost.migrations where name = wanted)
    order by wanted
  ) as migrations,
  array(
    select t || '_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD')
    from unnest(array['deliveries', 'bodies', 'attempts', 'feed']) as t, generate_series(0, 1) as n
    where to_regclass('sealpost.' || t || '_' || to_char((now() at time zone 'UTC')::date + n, 'YYYYMMDD')) is null
    order by 1
  ) as partitions`;

const READ_ONLY =
  "The database can only be read: it is a standby, or was set read-only. DATABASE_URL has to lead to the primary.";

/** No schema of this name, or no such table: nobody has ever migrated. */
const NEVER_MIGRATED = /^(?:3F000|42P01)$/;

/**
 * What the database lacks for our work, as sentences: writing, migrations that were not applied, partitions of today
 * and tomorrow. Empty: nothing.
 *
 * @param migrations the names of all files in sql/
 * @throws what the driver throws when the database is away
 */
export async function findHindrances(pool: Pool, migrations: readonly string[]): Promise<readonly string[]> {
  try {
    const { rows } = await pool.query<{
      is_read_only: boolean;
      migrations: string[];
      partitions: string[];
    }>({
      name: "find_hindrances",
      text: FIND,
      values: [migrations],
    });
    const found = rows[0]!;
    return [
      ...(found.is_read_only ? [READ_ONLY] : []),
      ...found.migrations.map((name) => `The migration ${name} is not applied: run migrate.`),
      ...found.partitions.map(
        (name) => `The partition ${name} is missing: the dispatchers' leader makes it.`,
      ),
    ];
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || !NEVER_MIGRATED.test(error.code ?? "")) throw error;
    return ["The database holds no tables of ours: run migrate."];
  }
}
