import type { Command } from "@commander-js/extra-typings";
import type { Pool } from "pg";
import type { Config } from "../config/config.ts";
import { MigrationError, migrate } from "../store/migrate.ts";
import { writeSettings } from "../store/settings.ts";
import { answer } from "./answer.ts";
import { requireSecretsKey, withDatabase } from "./database.ts";
import { Mistake } from "./mistake.ts";
import { databaseUrlOf, secretsKeyOf } from "./state-folder.ts";
import type { Surroundings } from "./surroundings.ts";

export function addMigrateCommand(program: Command, surroundings: Surroundings): void {
  program
    .command("migrate")
    .description("bring the database to the newest schema and tell it the configured limits")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(surroundings, async (pool, config) => {
        const databaseUrl = await databaseUrlOf(config);
        const applied = await prepareDatabase(pool, databaseUrl, config, (line) =>
          surroundings.stderr.write(`${line}\n`),
        );
        if (config.secretsKey !== null) await requireSecretsKey(pool, await secretsKeyOf(config));
        const words =
          applied.length === 0 ? "The database is up to date." : `Applied ${applied.length} files.`;
        answer(surroundings, options, { applied }, words);
      }),
    );
}

/** Migrates, then tells SQL what it must know of the configuration. Returns the files that were applied. */
export async function prepareDatabase(
  pool: Pool,
  databaseUrl: string,
  config: Config,
  log: (line: string) => void,
): Promise<readonly string[]> {
  try {
    const { applied } = await migrate({ databaseUrl, log });
    await writeSettings(pool, {
      analysisBytesMax: config.analysisBytesMax,
      unsafeAllowedTargets: config.unsafeAllowedTargets ?? [],
    });
    return applied;
  } catch (error) {
    if (error instanceof MigrationError) throw new Mistake(error.message, { cause: error });
    throw error;
  }
}
