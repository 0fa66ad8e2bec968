import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { verifySignature, WebhookVerificationError } from "../signing/index.ts";
import { answer } from "./answer.ts";
import { collect, parseWholeNumber } from "./options.ts";
import { readStandardInput } from "./standard-input.ts";

// Larger than any body that is ever sent; a receiver's recorded request is what is checked here.
const bodyBytesMax = 32 * 1024 * 1024;
const secondsMax = 99_999_999_999;

export function addSignatureCommands(program: Command, context: ProcessContext): void {
  program
    .command("signature")
    .description("verify the signature of a webhook")
    .command("verify")
    .description(
      "verify the body on standard input; ends with 0 when the signature is valid, 1 when it is not",
    )
    .requiredOption("--header <value>", "the header extract-signature as it arrived")
    .requiredOption(
      "--secret <secret>",
      "the signing secret; again for the old one during a rotation",
      collect,
    )
    .option("--now <seconds>", "Unix time of the arrival (default: now)", parseWholeNumber(0, secondsMax))
    .option("--tolerance <seconds>", "how old it may be", parseWholeNumber(1, secondsMax), 300)
    .option("--json", "answer in JSON, on a terminal too")
    .action(async (options) => {
      const body = await readStandardInput(context, bodyBytesMax);
      const rejection = rejectionOf({
        body,
        header: options.header,
        secrets: options.secret,
        toleranceSeconds: options.tolerance,
        nowSeconds: options.now ?? Math.floor(context.now() / 1_000),
      });
      const words = rejection ? `Not valid. ${rejection.message}` : "Valid.";
      answer(context, options, { valid: !rejection, reason: rejection?.code ?? null }, words);
      context.setExitCode(rejection ? 1 : 0);
    });
}

/**
 * Null when the signature is valid.
 * @throws UsageError when nothing could be judged, such as for an empty secret.
 */
function rejectionOf(input: Parameters<typeof verifySignature>[0]): WebhookVerificationError | null {
  try {
    verifySignature(input);
    return null;
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    if (error.kind === "misuse") throw new UsageError(error.message, { cause: error });
    return error;
  }
}
