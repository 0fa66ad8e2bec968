import { type Command, Option } from "commander";
import type { ClientBase, Pool } from "pg";
import { problems } from "../../api/problems.ts";
import { type Endpoint, PAYLOADS } from "../../delivery/endpoint-schema.ts";
import {
  findEndpoint,
  lockEndpointUrl,
  pauseEndpoint,
  resumeEndpoint,
  setEndpoint,
} from "../../delivery/endpoint-sql.ts";
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
  const pause = "hold every delivery to an account's endpoint instead of sending it";
  const resume = "end a pause: what was held is delivered, oldest first, up to 100 a second";
  addHolding(endpoint, context, "pause", pause, pauseEndpoint);
  addHolding(endpoint, context, "resume", resume, resumeEndpoint);
}

function addSet(endpoint: Command, context: ProcessContext): void {
  endpoint
    .command("set")
    .description("set or replace an account's endpoint")
    .requiredOption("--account <id>", "id of the account", parseId)
    .requiredOption("--url <url>", "a public https:// URL")
    .addOption(new Option("--payload <what>", "what webhooks carry (default: as it is)").choices(PAYLOADS))
    .addOption(
      new Option(
        "--forget-after-success <bool>",
        "whether what was delivered is erased (default: as it is)",
      ).choices(["true", "false"]),
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const judged = judgeTargetUrl(options.url, targetRulesOf(config));
        if (judged.verdict === "refuse") throw refusedTarget(judged, config);
        const { account: accountId } = options;
        await requireAccount(pool, accountId);
        const changed = await setEndpointAudited(pool, accountId, judged.href, options);
        printResult(context, options, endpointFields(changed), inColumns({ endpoint: changed.url }));
      }),
    );
}

/** As the options of the command say. `url`: of a target that is allowed, in its normal form. */
export async function setEndpointAudited(
  pool: Pool,
  accountId: string,
  url: string,
  options: { readonly payload?: Endpoint["payload"]; readonly forgetAfterSuccess?: "true" | "false" } = {},
): Promise<Endpoint> {
  const { payload, forgetAfterSuccess: forget } = options;
  const forgetsAfterSuccess = forget && forget === "true";
  return await changeAudited(pool, "webhooks.endpoint.set", async (tx) => {
    const previous_url = (await lockEndpointUrl(tx, accountId)) ?? undefined;
    const done = await setEndpoint(tx, accountId, url, { payload, forgetsAfterSuccess });
    if (done === null) throw new UsageError(problems.endpoint_options_conflict.remedy);
    const details = { url: done.url, previous_url, payload, forget_after_success: forget };
    return { done, accountId, details };
  });
}

function addHolding(
  endpoint: Command,
  context: ProcessContext,
  verb: "pause" | "resume",
  description: string,
  change: (tx: ClientBase, accountId: string) => Promise<boolean>,
): void {
  endpoint
    .command(verb)
    .description(description)
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const { account: accountId } = options;
        await requireAccount(pool, accountId);
        const changed = await changeAudited(pool, `webhooks.endpoint.${verb}`, async (tx) => {
          if (!(await change(tx, accountId)))
            throw new UsageError(`Account ${accountId} has no endpoint. Set one with endpoint set.`);
          return { done: (await findEndpoint(tx, accountId))!, accountId, details: {} };
        });
        const value = endpointFields(changed);
        const { url, paused_at, held } = value;
        const text = inColumns({ endpoint: url, "paused at": paused_at ?? "not paused", held: String(held) });
        printResult(context, options, value, text);
      }),
    );
}

function endpointFields({ certificate_expires_at, ...shown }: Endpoint) {
  return shown;
}
