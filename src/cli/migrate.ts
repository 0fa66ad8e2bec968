import type { Command } from "@commander-js/extra-typings";
import { loadSecretsKey, prepareDatabase, withDatabase } from "../app/database.ts";
import { printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { databaseUrlOf } from "../app/state-folder.ts";

export function addMigrateCommand(program: Command, context: ProcessContext): void {
  program
    .command("migrate")
    .description("migrate the database to the latest schema and store the configured limits in it")
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const databaseUrl = await databaseUrlOf(config);
        const applied = await prepareDatabase(pool, databaseUrl, config, (line) =>
          context.stderr.write(`${line}\n`),
        );
        if (config.secretsKey !== null) await loadSecretsKey(pool, config);
        const text =
          applied.length === 0 ? "The database is up to date." : `Applied ${applied.length} migrations.`;
        printResult(context, options, { applied }, text);
      }),
    );
}
