import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { targetRulesOf } from "../app/target-rules.ts";
import { inColumns } from "../app/terminal-text.ts";
import { UsageError } from "../app/usage-error.ts";
import { publish } from "../publish/publish-analyses.ts";
import { PublishRefusedError } from "../store/publications.ts";
import { answer } from "./answer.ts";
import { withDatabase } from "./database.ts";
import { parseId } from "./options.ts";
import { readStandardInput } from "./standard-input.ts";

export function addPublishCommand(program: Command, context: ProcessContext): void {
  program
    .command("publish")
    .description("publish the analysis on standard input, byte for byte; the same again changes nothing")
    .requiredOption("--account <id>", "whose analysis it is", parseId)
    .option("--webhook-url <url>", "where its webhook goes (default: the account's endpoint)")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const analysis = textOf(
          await readStandardInput(context, config.analysisBytesMax, "ANALYSIS_BYTES_MAX"),
        );
        refuseUnlessJson(analysis);
        const publication = {
          accountId: options.account,
          analysis,
          webhookUrl: options.webhookUrl ?? null,
        };
        const [deliveryId = ""] = await publish(pool, [publication], targetRulesOf(config)).catch(
          toUsageError,
        );
        const { id } = JSON.parse(analysis) as { id: string };
        const words = inColumns({ analysis: id, delivery: deliveryId });
        answer(context, options, { delivery_id: deliveryId, analysis_id: id }, words);
      }),
    );
}

/** A byte order mark stays and is refused with the rest that is not JSON: nothing is taken off what was given. */
function textOf(input: Buffer): string {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(input);
    if (!text.includes("\0")) return text;
  } catch {
    // Falls through: what is no UTF-8 is no JSON either.
  }
  throw new UsageError("Standard input must be an analysis as JSON in UTF-8.");
}

/** Says where it is broken, which the database does not. */
function refuseUnlessJson(text: string): void {
  if (text.trim() === "") throw new UsageError("Standard input is empty: it must be an analysis as JSON.");
  try {
    JSON.parse(text);
  } catch (error) {
    const where = (error as SyntaxError).message.replaceAll(/\s+/g, " ");
    throw new UsageError(`Standard input must be an analysis as JSON, and is not: ${where}.`, {
      cause: error,
    });
  }
}

function toUsageError(error: unknown): never {
  if (!(error instanceof PublishRefusedError)) throw error;
  const fault = error.message.replace(/^analysis at index 0: /, "").replace(/\.$/, "");
  const remedy = error.remedy.replace(/\.$/, "");
  const sentences = fault.includes(remedy) ? `${fault}.` : `${fault}. ${remedy}.`;
  throw new UsageError(`The analysis is not published: ${sentences}`, { cause: error });
}
