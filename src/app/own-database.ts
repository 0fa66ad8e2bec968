import { join } from "node:path";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../postgres/embedded.ts";
import { FolderInUseError } from "../postgres/ownership.ts";
import { abortableDelay, createBackoff } from "../schedule/backoff.ts";
import type { Announce } from "./announcements.ts";
import { removeDatabaseUrl, writeDatabaseUrl } from "./state-folder.ts";
import { UsageError } from "./usage-error.ts";

export type OwnDatabase = {
  /** Stays the same when the server has to be started again. */
  readonly databaseUrl: string;
  stop(): Promise<void>;
};

/**
 * Runs the embedded PostgreSQL in the state folder and starts it again when it ends by itself, until `stop`.
 * Commands beside this process find it by the folder.
 */
export async function startOwnDatabase(
  stateDir: string,
  random: () => number,
  announce: Announce,
): Promise<OwnDatabase> {
  const dataDir = join(stateDir, "postgres");
  const stopping = new AbortController();
  let server = await start(dataDir);
  await writeDatabaseUrl(stateDir, server.databaseUrl);
  announce("database_running", { folder: dataDir }, `PostgreSQL runs here, its data in ${dataDir}.`);

  async function keepRunning(): Promise<void> {
    const backoff = createBackoff({ baseMs: 500, maxMs: 10_000 }, random);
    while (!stopping.signal.aborted) {
      await server.ended;
      if (stopping.signal.aborted) return;
      announce("database_ended", {}, "PostgreSQL ended by itself; starting it again.");
      await server.stop();
      await startAgain(backoff.nextMs);
    }
  }

  async function startAgain(nextMs: () => number): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        server = await start(dataDir);
        announce("database_running", { folder: dataDir }, "PostgreSQL runs again.");
        return;
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        announce("database_failed", { message }, `PostgreSQL does not start: ${message}`);
        await abortableDelay(nextMs(), stopping.signal);
      }
    }
  }

  const kept = keepRunning();
  return {
    databaseUrl: server.databaseUrl,
    stop: async () => {
      stopping.abort();
      await removeDatabaseUrl(stateDir);
      await server.stop();
      await kept;
    },
  };
}

/** @throws UsageError when another process has the folder. */
async function start(dataDir: string): Promise<EmbeddedPostgres> {
  try {
    return await startEmbeddedPostgres({ dataDir });
  } catch (error) {
    if (error instanceof FolderInUseError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}
