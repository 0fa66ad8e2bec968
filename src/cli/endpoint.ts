import type { Command } from "@commander-js/extra-typings";
import { setEndpoint } from "../store/endpoints.ts";
import { judgeTargetUrl } from "../target/target-url.ts";
import { answer, inColumns } from "./answer.ts";
import { requireAccount, withDatabase } from "./database.ts";
import { parseId } from "./options.ts";
import type { Surroundings } from "./surroundings.ts";
import { refusedTarget, targetRulesOf } from "./target-rules.ts";

export function addEndpointCommands(program: Command, surroundings: Surroundings): void {
  program
    .command("endpoint")
    .description("set where an account's webhooks go, if they name no URL of their own")
    .command("set")
    .description("set or replace the endpoint of an account")
    .requiredOption("--account <id>", "whose", parseId)
    .requiredOption("--url <url>", "a public https:// URL")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(surroundings, async (pool, config) => {
        const judged = judgeTargetUrl(options.url, targetRulesOf(config));
        if (judged.verdict === "refuse") throw refusedTarget(judged, config);
        await requireAccount(pool, options.account);
        const endpoint = await setEndpoint(pool, options.account, judged.href);
        const value = {
          url: endpoint.url,
          created_at: endpoint.createdAt.toISOString(),
          updated_at: endpoint.updatedAt.toISOString(),
        };
        answer(surroundings, options, value, inColumns({ endpoint: endpoint.url }));
      }),
    );
}
