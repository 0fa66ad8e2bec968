import type { Pool, PoolClient } from "pg";
import type { DeliveryInbox } from "../../../src/signing/index.ts";

/** Delete a row once its analysis has expired (by default after 7 days): from then on it cannot be replayed. */
export const ACCEPTED_DELIVERIES_TABLE = `
  create table accepted_deliveries (id text primary key, accepted_at timestamptz not null default now())`;

/**
 * The id and what `accept` writes with the client are one transaction: both are stored, or neither. Of two concurrent
 * calls with the same id, the second waits in its insert until the first has ended.
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
        // Closing the connection rolls the transaction back, even if the connection itself failed.
        client.release(true);
        throw error;
      }
    },
  };
}
