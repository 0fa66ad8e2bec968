import type { ClientBase, Pool } from "pg";
import { callPublish, type Publication } from "./publish-call-sql.ts";

/** Publishes an example event: a real analysis, marked as an example in the log. */
export async function publishExample(
  database: Pool | ClientBase,
  publication: Publication,
  traceparent: string | null = null,
): Promise<readonly string[]> {
  return await callPublish(
    database,
    "select sealpost.publish($1::uuid[], $2::json[], $3::text[], true, now()) as ids",
    [publication],
    traceparent,
  );
}

/** The configuration that publishing in SQL needs. */
export type Settings = {
  readonly analysisBytesMax: number;
  /** `host:port` or `*.name:port`; empty in production. */
  readonly unsafeAllowedTargets: readonly string[];
};

// An unchanged row is not rewritten: publishers read it all the time.
const WRITE = `
update sealpost.settings set analysis_bytes_max = $1, unsafe_allowed_targets = $2
where (analysis_bytes_max, unsafe_allowed_targets) is distinct from ($1::integer, $2::text[])`;

/** Called after migrating: they hold for publishing from then on. */
export async function writeSettings(database: Pool | ClientBase, settings: Settings): Promise<void> {
  await database.query(WRITE, [settings.analysisBytesMax, settings.unsafeAllowedTargets]);
}
