import { type Command, Option } from "@commander-js/extra-typings";
import { changeAudited } from "../app/command-line-changes.ts";
import { loadSecretsKey, requireAccount, withDatabase } from "../app/database.ts";
import { inColumns, printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { DAY_SECONDS } from "../model/time.ts";
import { rotateSigningSecret } from "../store/signing-secrets.ts";
import { parseId, parseSeconds } from "./options.ts";

const IN_PROGRESS =
  "The secret was rotated before, and the one before it still signs: receivers that have only that one would be " +
  "locked out. Wait until its overlap ends, or give --end-previous.";

export function addSecretCommands(program: Command, context: ProcessContext): void {
  program
    .command("secret")
    .description("rotate signing secrets")
    .command("rotate")
    .description("replace the signing secret; the old one signs too until the overlap ends")
    .requiredOption("--account <id>", "id of the account", parseId)
    .addOption(
      new Option("--overlap <time>", "how long the old secret still signs too; 0s when it has leaked")
        .argParser(parseSeconds(7 * DAY_SECONDS))
        .default(DAY_SECONDS, "24h"),
    )
    .option(
      "--end-previous",
      "rotate although an earlier rotation's overlap lasts: receivers that have only the oldest secret are locked out",
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        await requireAccount(pool, options.account);
        const secretsKey = await loadSecretsKey(pool, config);
        const { account, overlap } = options;
        const rotation = { overlapSeconds: overlap, endsPrevious: options.endPrevious ?? false };
        const rotated = await changeAudited(
          pool,
          "webhooks.signing_secret.rotate",
          async (tx) => {
            const made = await rotateSigningSecret(tx, account, rotation, secretsKey);
            if (made === "rotation_in_progress") throw new UsageError(IN_PROGRESS);
            return made;
          },
          () => ({
            accountId: account,
            details: { overlap_seconds: overlap, ...(rotation.endsPrevious ? { end_previous: true } : {}) },
          }),
        );
        const until = new Date(rotated.createdAt.getTime() + overlap * 1_000).toISOString();
        const value = { signing_secret: rotated.secret, previous_expires_at: until };
        const text = inColumns({ "signing secret": rotated.secret, "old secret signs until": until });
        printResult(context, options, value, text);
      }),
    );
}
