import type { Command } from "commander";
import type { Config } from "../../base/config/config.ts";
import { publish } from "../../publish/publish-analyses.ts";
import { PublishRefusedError } from "../../publish/publish-call-sql.ts";
import { withDatabase } from "../database.ts";
import { targetRulesOf, UNSAFE_TARGETS_HINT } from "../egress.ts";
import { inColumns, printResult, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId, readStandardInput } from "./options.ts";

export function addPublishCommand(program: Command, context: ProcessContext): void {
  program
    .command("publish")
    .description("publish the analysis on standard input, byte for byte; publishing it again has no effect")
    .requiredOption("--account <id>", "account that the analysis belongs to", parseId)
    .option("--webhook-url <url>", "target of its webhook (default: the account's endpoint)")
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const input = await readStandardInput(context, config.analysisBytesMax, "ANALYSIS_BYTES_MAX");
        const analysis = decodeUtf8(input);
        requireJson(analysis);
        const { account: accountId, webhookUrl = null } = options;
        const publication = { accountId, analysis, webhookUrl };
        const { entries } = targetRulesOf(config).unsafeAllowedTargets;
        const publishing = publish(pool, [publication], { unsafeAllowedTargets: entries });
        const [deliveryId = ""] = await publishing.catch((error) => toUsageError(error, config));
        const { id } = JSON.parse(analysis) as { id: string };
        const text = inColumns({ analysis: id, delivery: deliveryId });
        printResult(context, options, { delivery_id: deliveryId, analysis_id: id }, text);
      }),
    );
}

/** Nothing is stripped from the input: a byte order mark stays, and is refused later because it is not JSON. */
function decodeUtf8(input: Buffer): string {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(input);
    if (!text.includes("\0")) return text;
  } catch {
    // Not UTF-8, so not JSON either: the same error.
  }
  throw new UsageError("Standard input must be an analysis in JSON, encoded as UTF-8.");
}

/** Its error says where the syntax is wrong; the database's does not. */
function requireJson(text: string): void {
  if (text.trim() === "") throw new UsageError("Standard input is empty; it must be an analysis in JSON.");
  try {
    JSON.parse(text);
  } catch (error) {
    const where = (error as SyntaxError).message.replaceAll(/\s+/g, " ");
    throw new UsageError(`Standard input is not valid JSON: ${where}.`, { cause: error });
  }
}

function toUsageError(error: unknown, { environment }: Config): never {
  if (!(error instanceof PublishRefusedError)) throw error;
  const fault = error.message.replace(/^analysis at index 0: /, "").replace(/\.$/, "");
  const remedy = error.remedy.replace(/\.$/, "");
  const sentences = fault.includes(remedy) ? `${fault}.` : `${fault}. ${remedy}.`;
  const isForTests = error.code === "target_refused" && environment === "development";
  const hint = isForTests ? ` ${UNSAFE_TARGETS_HINT}` : "";
  throw new UsageError(`The analysis was not published: ${sentences}${hint}`, { cause: error });
}
