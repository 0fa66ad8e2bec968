import pg from "pg";
import { until } from "./scenario.ts";

/** Commits that hang where they cannot be told from committed ones by whoever sent them. */
export type HeldCommits = {
  /** From now on no transaction that stores an answer gets past its commit. */
  hold(): Promise<void>;
  /** Resolves when at least so many are at it. */
  waitForCommits(count: number): Promise<void>;
  /** Ends their sessions: they are rolled back. */
  end(): Promise<void>;
  /** They commit, even those whose client has gone. */
  letGo(): Promise<void>;
  close(): Promise<void>;
};

/** Any number that nobody else locks. */
const LOCK = 20_170_017;

// Asks again and again, as no limit on locks is to end it.
const TRIGGER = `
create function public.hold_commit() returns trigger language plpgsql as $$
begin
  while not pg_try_advisory_xact_lock_shared(${LOCK}) loop
    perform pg_sleep(0.005);
  end loop;
  return null;
end
$$;
create constraint trigger hold_commit after insert on sealpost.idempotency_keys
  deferrable initially deferred for each row execute function public.hold_commit()`;

// Nobody else sleeps. A transaction of one statement ends without a COMMIT of its own.
const AT_COMMIT = `
from pg_stat_activity
where datname = current_database() and state = 'active' and wait_event = 'PgSleep'`;

/** Writes of the API can be held from now on. To be called while nobody writes. */
export async function openHeldCommits(databaseUrl: string): Promise<HeldCommits> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  await client.query(TRIGGER);
  const letGo = async () => {
    await client.query("select pg_advisory_unlock_all()");
  };
  return {
    hold: async () => {
      await client.query("select pg_advisory_lock($1)", [LOCK]);
    },
    waitForCommits: (count) =>
      until(async () => {
        const { rows } = await client.query<{ n: number }>(`select count(*)::integer as n ${AT_COMMIT}`);
        return rows[0]!.n >= count;
      }),
    end: async () => {
      await client.query(`select pg_terminate_backend(pid, 5000) ${AT_COMMIT}`);
      await letGo();
    },
    letGo,
    close: () => client.end(),
  };
}
