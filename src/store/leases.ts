import type { ClientBase, Pool } from "pg";

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

/** Any constant: the advisory lock of the cluster's one quarantine process. */
const QUARANTINE_LOCK = "7365706101";

/**
 * True when this session is the one that may post from quarantine. The lock is an advisory one and not a row because
 * it is freed when the session ends, in whatever way.
 */
export async function tryToLockQuarantine(client: ClientBase): Promise<boolean> {
  const { rows } = await client.query<{ got: boolean }>("select pg_try_advisory_lock($1::bigint) as got", [
    QUARANTINE_LOCK,
  ]);
  return rows[0]!.got;
}
