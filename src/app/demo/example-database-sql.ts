import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { createGeneralPool } from "../../base/database/pools.ts";

/** What the demo's pipeline has of its own in the same database. */
export async function createResultsTable(pool: Pool): Promise<void> {
  await pool.query("create table public.results (analysis_id text primary key, result json not null)");
}

/** `result`: exact JSON text. */
export async function insertResult(client: ClientBase, analysisId: string, result: string): Promise<void> {
  await client.query("insert into public.results (analysis_id, result) values ($1, $2)", [
    analysisId,
    result,
  ]);
}

/**
 * Makes a new database beside the one that the URL names, which is not touched; returns its URL. Its role must be
 * allowed to make databases.
 */
export async function createThrowAwayDatabase(
  besideUrl: string,
  resources: AsyncDisposableStack,
): Promise<string> {
  const pool = createGeneralPool({
    databaseUrl: besideUrl,
    connectionsMax: 1,
    applicationName: "sealpost demo",
    onError: () => undefined,
  });
  resources.defer(() => pool.end());
  const name = `sealpost_demo_${randomBytes(4).toString("hex")}`;
  await pool.query(`create database ${name}`);
  resources.defer(async () => void (await pool.query(`drop database if exists ${name} with (force)`)));
  const url = new URL(besideUrl);
  url.pathname = `/${name}`;
  return url.href;
}
