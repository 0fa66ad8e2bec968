import type { Pool } from "pg";
import { TemporarilyUnavailable } from "../api/problems.ts";
import { readMigrationNames } from "../store/migrate.ts";
import { findHindrances } from "../store/readiness.ts";

/** What keeps a process from doing its work, as sentences; empty: nothing. Never rejects. */
export type FindHindrances = () => Promise<readonly string[]>;

/** Looks at the database, its migrations and its partitions. */
export async function createFindHindrances(pool: Pool): Promise<FindHindrances> {
  const migrations = await readMigrationNames();
  return async () => {
    try {
      return await findHindrances(pool, migrations);
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      return [`The database does not answer (${code ?? message}).`];
    }
  };
}

/** The same for the API's own probe. @throws TemporarilyUnavailable */
export function createCheckReady(findHindrances: FindHindrances): () => Promise<void> {
  return async () => {
    const hindrances = await findHindrances();
    if (hindrances.length > 0) throw new TemporarilyUnavailable(hindrances.join(" "));
  };
}
