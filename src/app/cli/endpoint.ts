import { readFile } from "node:fs/promises";
import { type Command, Option } from "commander";
import type { ClientBase, Pool } from "pg";
import { problems } from "../../api/problems.ts";
import type { Config } from "../../base/config/config.ts";
import { HeaderValueMissing, NewEndpointHeaders } from "../../delivery/endpoint-headers.ts";
import { PAYLOADS, SIGNATURE_SCHEMES } from "../../delivery/endpoint-schema.ts";
import {
  changeEndpoint,
  type EndpointChange,
  findEndpoint,
  pauseEndpoint,
  resumeEndpoint,
  type StoredEndpoint,
} from "../../delivery/endpoint-sql.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { changeAudited } from "../create-api-key.ts";
import { loadSecretsKey, requireAccount, withDatabase } from "../database.ts";
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
    .addOption(
      new Option(
        "--signature-schemes <names>",
        "with `standard`, the headers of Standard Webhooks are sent, too (default: as it is)",
      ).choices([SIGNATURE_SCHEMES[0], SIGNATURE_SCHEMES.join()]),
    )
    .option(
      "--headers-file <file>",
      "its own headers, as the API takes them: a JSON array of {name, value, secret} (default: as they are)",
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const judged = judgeTargetUrl(options.url, targetRulesOf(config));
        if (judged.verdict === "refuse") throw refusedTarget(judged, config);
        const {
          account: accountId,
          payload,
          forgetAfterSuccess: forget,
          signatureSchemes: schemes,
          headersFile,
        } = options;
        const change: EndpointChange = {
          payload,
          forgetsAfterSuccess: forget && forget === "true",
          signsStandard: schemes === undefined ? undefined : schemes === SIGNATURE_SCHEMES.join(),
          headers: headersFile === undefined ? undefined : await readHeaders(headersFile),
        };
        await requireAccount(pool, accountId);
        const changed = await setEndpointAudited(pool, config, accountId, judged.href, change);
        printResult(context, options, endpointFields(changed), inColumns({ endpoint: changed.url }));
      }),
    );
}

async function readHeaders(file: string): Promise<EndpointChange["headers"]> {
  const text = await readFile(file, "utf8").catch(({ code }) => {
    throw new UsageError(`--headers-file: ${file} cannot be read (${code}).`);
  });
  // What is wrong is said by place, never with the text: it has secrets in it.
  const { data, error } = NewEndpointHeaders.safeParse(jsonOf(file, text));
  if (error === undefined) return data;
  const { path, message } = error.issues[0]!;
  throw new UsageError(`--headers-file: ${path.length > 0 ? `${path.join(".")}: ` : ""}${message}`);
}

function jsonOf(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`--headers-file: ${file} is not valid JSON.`);
  }
}

/** `url`: of a target that is allowed, in its normal form. */
export async function setEndpointAudited(
  pool: Pool,
  config: Config,
  accountId: string,
  url: string,
  change: EndpointChange = {},
): Promise<StoredEndpoint> {
  const { payload, forgetsAfterSuccess, signsStandard, headers } = change;
  return await changeAudited(pool, "webhooks.endpoint.set", async (tx) => {
    const changing = changeEndpoint(tx, accountId, url, change, () => loadSecretsKey(pool, config));
    const { endpoint: done, previousUrl } = await changing.catch((error: unknown) => {
      if (!(error instanceof HeaderValueMissing)) throw error;
      throw new UsageError(`--headers-file: ${error.at}.value: ${error.message}`);
    });
    if (done === null) throw new UsageError(problems.endpoint_options_conflict.remedy);
    const details = {
      url: done.url,
      previous_url: previousUrl,
      payload,
      forget_after_success: forgetsAfterSuccess,
      signature_schemes: signsStandard === undefined ? undefined : done.signature_schemes,
      headers: headers?.map(({ name }) => name),
    };
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

function endpointFields(endpoint: StoredEndpoint) {
  const { certificate_expires_at, certificate_first_seen_at, sealedHeaders, ...shown } = endpoint;
  return shown;
}
