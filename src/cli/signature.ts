import type { Command } from "@commander-js/extra-typings";
import { printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { verifySignature, WebhookVerificationError } from "../signing/index.ts";
import { collect, parseWholeNumber } from "./options.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./signing-secrets.ts";
import { readStandardInput } from "./standard-input.ts";

// More than the body of any webhook has.
const BODY_BYTES_MAX = 32 * 1024 * 1024;
const SECONDS_MAX = 99_999_999_999;

export function addSignatureCommands(program: Command, context: ProcessContext): void {
  program
    .command("signature")
    .description("verify the signature of a webhook")
    .command("verify")
    .description(
      "verify the body on standard input; the exit code is 0 when the signature is valid, 1 when it is not",
    )
    .requiredOption("--header <value>", "the extract-signature header of the request")
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--now <seconds>", "Unix time of arrival (default: now)", parseWholeNumber(0, SECONDS_MAX))
    .option("--tolerance <seconds>", "maximum age", parseWholeNumber(1, SECONDS_MAX), 300)
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      const secrets = await readSigningSecrets(context, options);
      const body = await readStandardInput(context, BODY_BYTES_MAX);
      const rejection = findRejection({
        body,
        header: options.header,
        secrets,
        toleranceSeconds: options.tolerance,
        nowSeconds: options.now ?? Math.floor(context.now() / 1_000),
      });
      const text = rejection ? `Not valid. ${rejection.message}` : "Valid.";
      printResult(context, options, { valid: !rejection, reason: rejection?.code ?? null }, text);
      context.setExitCode(rejection ? 1 : 0);
    });
}

/**
 * Null when the signature is valid.
 * @throws UsageError when verification is not possible, such as with an empty secret
 */
function findRejection(input: Parameters<typeof verifySignature>[0]): WebhookVerificationError | null {
  try {
    verifySignature(input);
    return null;
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    if (error.kind === "misuse") throw new UsageError(error.message, { cause: error });
    return error;
  }
}
