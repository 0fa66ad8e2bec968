import type { Command } from "@commander-js/extra-typings";
import { prepareDatabase, requireSecretsKey } from "../app/prepare-database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { databaseUrlOf, secretsKeyOf } from "../app/state-folder.ts";
import { answer } from "./answer.ts";
import { withDatabase } from "./database.ts";

export function addMigrateCommand(program: Command, context: ProcessContext): void {
  program
    .command("migrate")
    .description("bring the database to the newest schema and tell it the configured limits")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const databaseUrl = await databaseUrlOf(config);
        const applied = await prepareDatabase(pool, databaseUrl, config, (line) =>
          context.stderr.write(`${line}\n`),
        );
        if (config.secretsKey !== null) await requireSecretsKey(pool, await secretsKeyOf(config));
        const words =
          applied.length === 0 ? "The database is up to date." : `Applied ${applied.length} files.`;
        answer(context, options, { applied }, words);
      }),
    );
}
