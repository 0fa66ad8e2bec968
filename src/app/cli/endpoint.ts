import type { Command } from "commander";
import type { ClientBase } from "pg";
import { type Endpoint, findEndpoint, setEndpoint } from "../../delivery/endpoint-sql.ts";
import { pauseEndpoint, resumeEndpoint } from "../../delivery/holds-sql.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { changeAudited } from "../create-api-key.ts";
import { requireAccount, withDatabase } from "../database.ts";
import { refusedTarget, targetRulesOf } from "../egress.ts";
import { inColumns, printResult, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId } from "./options.ts";

export function addEndpointCommands(program: Command, context: ProcessContext): void {
  const endpoint = program
    .command("endpoint")
    .description("set the default URL for an account's webhooks, and hold what would go there");
  addSet(endpoint, context);
  addPause(endpoint, context);
  addResume(endpoint, context);
}

function addSet(endpoint: Command, context: ProcessContext): void {
  endpoint
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
        const changed = await changeAudited(
          pool,
          "webhooks.endpoint.set",
          (tx) => setEndpoint(tx, options.account, judged.href),
          ({ url }) => ({ accountId: options.account, details: { url } }),
        );
        printResult(context, options, endpointFields(changed), inColumns({ endpoint: changed.url }));
      }),
    );
}

function addPause(endpoint: Command, context: ProcessContext): void {
  endpoint
    .command("pause")
    .description("hold every delivery to an account's endpoint, in place of sending it")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) => changeHolding(context, options, "webhooks.endpoint.pause", pauseEndpoint));
}

function addResume(endpoint: Command, context: ProcessContext): void {
  endpoint
    .command("resume")
    .description("end a pause: what was held is delivered, oldest first, up to 100 a second")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) => changeHolding(context, options, "webhooks.endpoint.resume", resumeEndpoint));
}

/** @throws UsageError for an account without an endpoint */
async function changeHolding(
  context: ProcessContext,
  options: { readonly account: string; readonly json?: true | undefined },
  operationKey: "webhooks.endpoint.pause" | "webhooks.endpoint.resume",
  change: (tx: ClientBase, accountId: string) => Promise<boolean>,
): Promise<void> {
  await withDatabase(context, async (pool) => {
    await requireAccount(pool, options.account);
    const changed = await changeAudited(
      pool,
      operationKey,
      async (tx) => {
        if (await change(tx, options.account)) return (await findEndpoint(tx, options.account))!;
        throw new UsageError(`Account ${options.account} has no endpoint. Set one with endpoint set.`);
      },
      () => ({ accountId: options.account, details: {} }),
    );
    const { url, paused_at, held } = endpointFields(changed);
    const text = inColumns({ endpoint: url, "paused at": paused_at ?? "not paused", held: String(held) });
    printResult(context, options, endpointFields(changed), text);
  });
}

function endpointFields({ url, createdAt, updatedAt, pausedAt, held }: Endpoint) {
  return {
    url,
    created_at: createdAt.toISOString(),
    updated_at: updatedAt.toISOString(),
    paused_at: pausedAt?.toISOString() ?? null,
    held,
  };
}
