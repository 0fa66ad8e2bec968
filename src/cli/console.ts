import type { Command } from "@commander-js/extra-typings";
import { openConsole } from "../app/console-link.ts";
import { requireAccount, withDatabase } from "../app/database.ts";
import { httpUrl } from "../app/listening.ts";
import { printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { LINK_SECONDS } from "../model/console.ts";
import { parseId } from "./options.ts";

export function addConsoleCommands(program: Command, context: ProcessContext): void {
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
