import type { Command } from "@commander-js/extra-typings";
import { changeAudited } from "../app/command-line-changes.ts";
import { requireAccount, withDatabase } from "../app/database.ts";
import { inColumns, printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { refusedTarget, targetRulesOf } from "../app/target-rules.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { setEndpoint } from "../store/endpoints.ts";
import { parseId } from "./options.ts";

export function addEndpointCommands(program: Command, context: ProcessContext): void {
  program
    .command("endpoint")
    .description("set the default URL for an account's webhooks")
    .command("set")
    .description("set or replace an account's endpoint")
    .requiredOption("--account <id>", "id of the account", parseId)
    .requiredOption("--url <url>", "a public https:// URL")
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const judged = judgeTargetUrl(options.url, targetRulesOf(config));
        if (judged.verdict === "refuse") throw refusedTarget(judged, config);
        await requireAccount(pool, options.account);
        const endpoint = await changeAudited(
          pool,
          "webhooks.endpoint.set",
          (tx) => setEndpoint(tx, options.account, judged.href),
          ({ url }) => ({ accountId: options.account, details: { url } }),
        );
        const value = {
          url: endpoint.url,
          created_at: endpoint.createdAt.toISOString(),
          updated_at: endpoint.updatedAt.toISOString(),
        };
        printResult(context, options, value, inColumns({ endpoint: endpoint.url }));
      }),
    );
}
