import type { Pool } from "pg";
import type { ObjectStore } from "../objects/object-store.ts";
import { claimLoose, forgetLoose } from "../store/loose-objects.ts";

const OBJECTS_PER_STEP = 25;

/**
 * Removes objects that no document has and that nobody can bring to one any more: old ones of what was moved, and what
 * uploads and moves left behind. Returns how many; fewer than a full step when that was all.
 */
export async function removeLoose(
  { pool, objects }: { readonly pool: Pool; readonly objects: ObjectStore },
  signal: AbortSignal,
): Promise<{ readonly count: number; readonly isFull: boolean }> {
  const due = await claimLoose(pool, OBJECTS_PER_STEP);
  const removals = await Promise.allSettled(
    due.map(async (loose) => {
      await objects.remove(loose.storageKey, signal);
      await forgetLoose(pool, loose);
    }),
  );
  const failure = removals.find((removal) => removal.status === "rejected");
  if (failure) throw failure.reason;
  return { count: due.length, isFull: due.length === OBJECTS_PER_STEP };
}
