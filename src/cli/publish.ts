import type { Command } from "@commander-js/extra-typings";
import { publish } from "../publish/publish-analyses.ts";
import { PublishRefusedError } from "../store/publications.ts";
import { answer, inColumns } from "./answer.ts";
import { withDatabase } from "./database.ts";
import { Mistake } from "./mistake.ts";
import { parseId } from "./options.ts";
import { readStandardInput } from "./standard-input.ts";
import type { Surroundings } from "./surroundings.ts";
import { targetRulesOf } from "./target-rules.ts";

export function addPublishCommand(program: Command, surroundings: Surroundings): void {
  program
    .command("publish")
    .description("publish the analysis on standard input, byte for byte; the same again changes nothing")
    .requiredOption("--account <id>", "whose analysis it is", parseId)
    .option("--webhook-url <url>", "where its webhook goes (default: the account's endpoint)")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(surroundings, async (pool, config) => {
        const analysis = textOf(
          await readStandardInput(surroundings, config.analysisBytesMax, "ANALYSIS_BYTES_MAX"),
        );
        refuseUnlessJson(analysis);
        const publication = {
          accountId: options.account,
          analysis,
          webhookUrl: options.webhookUrl ?? null,
        };
        const [deliveryId = ""] = await publish(pool, [publication], targetRulesOf(config)).catch(toMistake);
        const { id } = JSON.parse(analysis) as { id: string };
        const words = inColumns({ analysis: id, delivery: deliveryId });
        answer(surroundings, options, { delivery_id: deliveryId, analysis_id: id }, words);
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
  throw new Mistake("Standard input must be an analysis as JSON in UTF-8.");
}

/** Says where it is broken, which the database does not. */
function refuseUnlessJson(text: string): void {
  if (text.trim() === "") throw new Mistake("Standard input is empty: it must be an analysis as JSON.");
  try {
    JSON.parse(text);
  } catch (error) {
    const where = (error as SyntaxError).message.replaceAll(/\s+/g, " ");
    throw new Mistake(`Standard input must be an analysis as JSON, and is not: ${where}.`, { cause: error });
  }
}

function toMistake(error: unknown): never {
  if (!(error instanceof PublishRefusedError)) throw error;
  const fault = error.message.replace(/^analysis at index 0: /, "").replace(/\.$/, "");
  const remedy = error.remedy.replace(/\.$/, "");
  const sentences = fault.includes(remedy) ? `${fault}.` : `${fault}. ${remedy}.`;
  throw new Mistake(`The analysis is not published: ${sentences}`, { cause: error });
}
