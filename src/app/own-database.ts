import { join } from "node:path";
import { FolderInUseError } from "../base/embedded/account.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../base/embedded/embedded.ts";
import { abortableDelay, createBackoff } from "../base/model/backoff.ts";
import { type Announce, UsageError } from "./output.ts";
import { removeOwnDatabase, writeOwnDatabase } from "./state-folder.ts";

export type OwnDatabase = {
  /** Stays the same when the server is restarted. */
  readonly databaseUrl: string;
  stop(): Promise<void>;
};

const RESTART_BACKOFF = { baseMs: 500, maxMs: 10_000 };

/**
 * Runs the embedded PostgreSQL in the state folder, and restarts it when it ends, until `stop`. Other commands find it
 * through the folder.
 * @param settings the variables that are set, for the commands that use this database
 * @param random uniform in [0, 1), for the jitter of restarts
 */
export async function startOwnDatabase(
  stateDir: string,
  settings: Readonly<Record<string, string>>,
  announce: Announce,
  random: () => number,
): Promise<OwnDatabase> {
  const dataDir = join(stateDir, "postgres");
  const stopping = new AbortController();
  let server = await start(dataDir);
  await writeOwnDatabase(stateDir, server.databaseUrl, settings);
  announce("database_running", { folder: dataDir }, `PostgreSQL is running; its data is in ${dataDir}.`);

  async function keepRunning(): Promise<void> {
    while (!stopping.signal.aborted) {
      await server.ended;
      if (stopping.signal.aborted) return;
      announce("database_ended", {}, "PostgreSQL ended unexpectedly; restarting it.");
      await server.stop();
      await restart();
    }
  }

  async function restart(): Promise<void> {
    const backoff = createBackoff(RESTART_BACKOFF, random);
    while (!stopping.signal.aborted) {
      try {
        server = await start(dataDir);
        announce("database_running", { folder: dataDir }, "PostgreSQL is running again.");
        return;
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        announce("database_failed", { message }, `PostgreSQL failed to start: ${message}`);
        await abortableDelay(backoff.nextMs(), stopping.signal);
      }
    }
  }

  const kept = keepRunning();
  return {
    databaseUrl: server.databaseUrl,
    stop: async () => {
      stopping.abort();
      await removeOwnDatabase(stateDir);
      await server.stop();
      await kept;
    },
  };
}

/** @throws UsageError when another process uses the folder */
async function start(dataDir: string): Promise<EmbeddedPostgres> {
  try {
    return await startEmbeddedPostgres({ dataDir });
  } catch (error) {
    if (error instanceof FolderInUseError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}
