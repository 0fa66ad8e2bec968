import pg from "pg";

export type HeldTable = {
  /** Ends the sessions that wait for it, and what they were to do. */
  endWaiters(): Promise<void>;
  letGo(): Promise<void>;
};

/** Nobody reads or writes the table until it is let go. */
export async function holdTable(databaseUrl: string, table: string): Promise<HeldTable> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  await client.query("begin");
  await client.query(`lock table ${table} in access exclusive mode`);
  return {
    endWaiters: async () => {
      await client.query(
        `select pg_terminate_backend(pid, 5000) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock'`,
      );
    },
    letGo: () => client.end(),
  };
}
