import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { createGeneralPool } from "../../base/database/pools.ts";

/** The role that the example pipeline works as. */
export const EXAMPLE_PIPELINE_ROLE = "example_pipeline";

/**
 * What the demo's pipeline has of its own in the same database: a table for its results, and a role that may write
 * there and publish, and nothing else.
 */
const PREPARE = `
do $$ begin
  create role ${EXAMPLE_PIPELINE_ROLE};
exception when duplicate_object then
  null; -- roles belong to the server: another demo may be running there
end $$;
create schema pipeline authorization ${EXAMPLE_PIPELINE_ROLE};
create table pipeline.results (analysis_id text primary key, result json not null);
alter table pipeline.results owner to ${EXAMPLE_PIPELINE_ROLE};
grant usage on schema sealpost to ${EXAMPLE_PIPELINE_ROLE};
grant execute on function sealpost.publish_analysis(uuid, json, text) to ${EXAMPLE_PIPELINE_ROLE}`;

/** Once per database. */
export async function prepareExamplePipeline(pool: Pool): Promise<void> {
  await pool.query(PREPARE);
}

type ExampleResult = {
  readonly accountId: string;
  readonly analysisId: string;
  /** The analysis's exact JSON text. */
  readonly analysis: string;
  readonly webhookUrl: string | null;
};

/** How a pipeline ends its work, inside the transaction that the client has begun. Returns the delivery's id. */
export async function storeExampleResult(client: ClientBase, result: ExampleResult): Promise<string> {
  await client.query("insert into pipeline.results (analysis_id, result) values ($1, $2)", [
    result.analysisId,
    result.analysis,
  ]);
  const { rows } = await client.query<{ delivery_id: string }>(
    "select sealpost.publish_analysis($1, $2, $3) as delivery_id",
    [result.accountId, result.analysis, result.webhookUrl],
  );
  return rows[0]!.delivery_id;
}

export type ThrowAwayDatabase = { readonly databaseUrl: string; drop(): Promise<void> };

/**
 * A new database beside the one that the URL names, which is not touched. Its role must be allowed to make databases
 * and roles.
 */
export async function createThrowAwayDatabase(besideUrl: string): Promise<ThrowAwayDatabase> {
  const pool = createGeneralPool({
    databaseUrl: besideUrl,
    connectionsMax: 1,
    applicationName: "sealpost demo",
    onError: () => undefined,
  });
  const name = `sealpost_demo_${randomBytes(4).toString("hex")}`;
  await pool.query(`create database ${name}`);
  const url = new URL(besideUrl);
  url.pathname = `/${name}`;
  return {
    databaseUrl: url.href,
    drop: async () => {
      await pool.query(`drop database if exists ${name} with (force)`);
      // Another demo on the same server may still have the role.
      await pool.query(`drop role if exists ${EXAMPLE_PIPELINE_ROLE}`).catch(() => undefined);
      await pool.end();
    },
  };
}
