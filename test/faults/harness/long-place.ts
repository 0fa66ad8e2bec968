import { randomBytes } from "node:crypto";
import pg from "pg";
import { migrate } from "../../../src/base/database/migrate.ts";
import type { Chance } from "../../simulation/chance.ts";
import { OwnPostgres } from "./own-postgres.ts";
import type { Place } from "./scenario.ts";

/** One server with everything switched on that keeps data, and a database on it for each scenario. */
export async function openLongPlace(
  chance: Chance,
  minutes: number,
): Promise<{ place: Place; close(): Promise<void> }> {
  const postgres = await OwnPostgres.start({ settings: { max_connections: "300" } });
  const newDatabase = async () => {
    const name = `sealpost_${randomBytes(6).toString("hex")}`;
    const admin = new pg.Client({ connectionString: postgres.url });
    await admin.connect();
    await admin.query(`create database ${name}`);
    await admin.end();
    const url = new URL(postgres.url);
    url.pathname = `/${name}`;
    await migrate({ databaseUrl: url.href });
    return { url: url.href };
  };
  return { place: { scale: "long", minutes, chance, newDatabase }, close: () => postgres.close() };
}
