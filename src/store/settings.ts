import type { ClientBase, Pool } from "pg";

/** What SQL itself must know of the configuration. */
export type Settings = {
  readonly analysisBytesMax: number;
  /** `host:port` or `*.name:port`; empty in production. */
  readonly unsafeAllowedTargets: readonly string[];
};

// An unchanged row is left alone: publishers read it all the time.
const WRITE = `
update sealpost.settings set analysis_bytes_max = $1, unsafe_allowed_targets = $2
where (analysis_bytes_max, unsafe_allowed_targets) is distinct from ($1::integer, $2::text[])`;

/** Called after migrating: publishing goes by these from then on. */
export async function writeSettings(database: Pool | ClientBase, settings: Settings): Promise<void> {
  await database.query(WRITE, [settings.analysisBytesMax, settings.unsafeAllowedTargets]);
}
