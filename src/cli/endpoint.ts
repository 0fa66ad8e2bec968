import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { refusedTarget, targetRulesOf } from "../app/target-rules.ts";
import { inColumns } from "../app/terminal-text.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { setEndpoint } from "../store/endpoints.ts";
import { answer } from "./answer.ts";
import { requireAccount, withDatabase } from "./database.ts";
import { parseId } from "./options.ts";

export function addEndpointCommands(program: Command, context: ProcessContext): void {
  program
    .command("endpoint")
    .description("set where an account's webhooks go, if they name no URL of their own")
    .command("set")
    .description("set or replace the endpoint of an account")
    .requiredOption("--account <id>", "whose", parseId)
    .requiredOption("--url <url>", "a public https:// URL")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const judged = judgeTargetUrl(options.url, targetRulesOf(config));
        if (judged.verdict === "refuse") throw refusedTarget(judged, config);
        await requireAccount(pool, options.account);
        const endpoint = await setEndpoint(pool, options.account, judged.href);
        const value = {
          url: endpoint.url,
          created_at: endpoint.createdAt.toISOString(),
          updated_at: endpoint.updatedAt.toISOString(),
        };
        answer(context, options, value, inColumns({ endpoint: endpoint.url }));
      }),
    );
}
