import type { Pool } from "pg";

/**
 * Frees what a claim under this token leased and nobody posted, leaving no trace of an attempt. What is known of an
 * earlier one (lease_alone) stays.
 */
export async function freeLeases(
  pool: Pool,
  deliveryIds: readonly string[],
  leaseToken: string,
): Promise<void> {
  await pool.query({
    name: "free_leases",
    text: `update sealpost.open_deliveries
      set lease_token = null, lease_until = null, lease_number = null
      where delivery_id = any ($1::uuid[]) and lease_token = $2::uuid`,
    values: [`{${deliveryIds.join(",")}}`, leaseToken],
  });
}
