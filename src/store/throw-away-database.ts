import { randomBytes } from "node:crypto";
import { EXAMPLE_PIPELINE_ROLE } from "./example-pipeline.ts";
import { createGeneralPool } from "./pools.ts";

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
