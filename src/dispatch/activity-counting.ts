import type { Pool } from "pg";
import { countActivity, foldActivity } from "../store/activity.ts";
import { countPublished } from "../store/storage.ts";
import { LEASE_MARGIN_MS } from "./attempts.ts";

/** What ends with a lease is written down a moment later: so long, and it need not be counted as late. */
const AFTER_LEASE_MS = 10_000;

/**
 * Counts what was published, and what has ended up to an attempt's lease ago, step by step until it has caught up, then
 * makes hours of it.
 */
export async function countAllActivity(pool: Pool, deadlineMs: number, signal: AbortSignal): Promise<void> {
  const lagMs = deadlineMs + LEASE_MARGIN_MS + AFTER_LEASE_MS;
  while (!signal.aborted && (await countPublished(pool, lagMs)));
  while (!signal.aborted && (await countActivity(pool, lagMs)).isBehind);
  while (!signal.aborted && (await foldActivity(pool)));
}
