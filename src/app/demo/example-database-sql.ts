import { randomBytes } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { readConfig } from "../../base/config/config.ts";
import { createCommandPool } from "../database.ts";
import { UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";

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
 * Makes a new database beside the one that DATABASE_URL names, which is not touched; returns its URL. Its role must be
 * allowed to make databases.
 */
export async function createThrowAwayDatabase(
  { env }: ProcessContext,
  resources: AsyncDisposableStack,
): Promise<string> {
  const { databaseUrl } = readConfig(env);
  if (databaseUrl === null) throw new UsageError("--use-server needs DATABASE_URL, which names the server.");
  const pool = resources.use(createCommandPool(databaseUrl, "sealpost demo", { cell: null }));
  const name = `sealpost_demo_${randomBytes(4).toString("hex")}`;
  await pool.query(`create database ${name}`);
  resources.defer(async () => void (await pool.query(`drop database if exists ${name} with (force)`)));
  const url = new URL(databaseUrl);
  url.pathname = `/${name}`;
  return url.href;
}
