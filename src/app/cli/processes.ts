import type { Command } from "commander";
import { LINK_SECONDS } from "../../base/model/console.ts";
import { openConsole } from "../console-sessions.ts";
import { prepareDatabase, requireAccount, withDatabase } from "../database.ts";
import { httpUrl } from "../listening.ts";
import { createAnnounce, printResult } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { databaseUrlOf } from "../state-folder.ts";
import { collectIds, parseId } from "./options.ts";

/**
 * Of processes and their database: those that run until they are stopped first. Each loads what it runs when it is
 * called, so that none has the memory of all.
 */
export function addProcessCommands(program: Command, context: ProcessContext): void {
  program
    .command("start")
    .description("run the whole service: API, dispatcher and, without DATABASE_URL, an embedded PostgreSQL")
    .option("--json", "print events as JSON lines")
    .action(async (options) => {
      const { runStandalone } = await import("../start.ts");
      context.setExitCode(await runStandalone(context, createAnnounce(context, options)));
    });
  program
    .command("serve")
    .description("run the API; any number of processes can share one database")
    .option("--json", "no effect: LOG_FORMAT decides")
    .action(async () => (await import("../serve.ts")).runApi(context));
  program
    .command("dispatch")
    .description("deliver what is published; any number of processes can share one database")
    .option(
      "--alone <delivery-ids...>",
      "post only these, one at a time, then exit (dispatchers start this themselves)",
      collectIds,
    )
    .option(
      "--area-steps",
      "do the areas' background work, and post nothing (dispatchers start this themselves)",
    )
    .option("--json", "no effect: LOG_FORMAT decides")
    .action(async ({ alone, areaSteps }) => {
      const { runAreaSteps, runDispatcher, runQuarantine } = await import("../dispatch.ts");
      if (areaSteps === true) await runAreaSteps(context);
      else if (alone === undefined) await runDispatcher(context);
      else context.setExitCode(await runQuarantine(context, alone));
    });
  program
    .command("demo")
    .description("show deliveries to local receivers, from the first attempt to a replay")
    .option("--stay", "keep running at the end, and print the URL and the API key")
    .option("--use-server", "use a temporary database on the server of DATABASE_URL")
    .option("--json", "print events as JSON lines")
    .action(async (options) => {
      const { runDemo } = await import("../demo/demo.ts");
      context.setExitCode((await runDemo(context, options)) ? 0 : 1);
    });
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
        const text =
          applied.length === 0 ? "The database is up to date." : `Applied ${applied.length} migrations.`;
        printResult(context, options, { applied }, text);
      }),
    );
  program
    .command("console")
    .description("open the console")
    .command("link")
    .description("print a link that opens the console of an account once, within a minute")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        await requireAccount(pool, options.account);
        const publicUrl = config.publicUrl ?? httpUrl(config.host, config.port);
        const { url, expiresAt } = await openConsole(pool, options.account, {
          publicUrl,
          linkSeconds: LINK_SECONDS,
        });
        printResult(context, options, { url, link_expires_at: expiresAt.toISOString() }, url);
      }),
    );
}
