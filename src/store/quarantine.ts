import type { ClientBase } from "pg";

/** Any constant: the advisory lock of the one process in the cluster that posts a delivery alone. */
const ALONE_LOCK = "7365706101";

/**
 * True when this session is the one that may post a delivery alone. Its end, however it comes, frees the lock: that is
 * what a lock of the session is for, and why this one is not a row.
 */
export async function tryToBeAlone(client: ClientBase): Promise<boolean> {
  const { rows } = await client.query<{ got: boolean }>("select pg_try_advisory_lock($1::bigint) as got", [
    ALONE_LOCK,
  ]);
  return rows[0]!.got;
}
