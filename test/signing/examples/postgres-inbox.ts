import type { Pool, PoolClient } from "pg";
import type { DeliveryInbox } from "../../../src/signing/index.ts";

/**
 * A row may go once its analysis can no longer be read (after 7 days, unless you were told another time): from then on
 * nothing is replayed.
 */
export const ACCEPTED_DELIVERIES_TABLE = `
  create table accepted_deliveries (id text primary key, accepted_at timestamptz not null default now())`;

/**
 * The id and what `accept` writes with the client are one transaction: both are there afterwards, or neither. Of two
 * calls with the same id at once, the second waits in its insert for the first one's end.
 */
export function createPostgresInbox(pool: Pool): DeliveryInbox<PoolClient> {
  return {
    async acceptOnce(deliveryId, accept) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        const { rowCount } = await client.query(
          "insert into accepted_deliveries (id) values ($1) on conflict do nothing",
          [deliveryId],
        );
        if (rowCount === 1) await accept(client);
        await client.query("commit");
        client.release();
        return rowCount === 1 ? "accepted" : "duplicate";
      } catch (error) {
        // Closing the connection undoes the transaction, even where the connection is what failed.
        client.release(true);
        throw error;
      }
    },
  };
}
