import { type Command, Option } from "@commander-js/extra-typings";
import { requireSecretsKey } from "../app/prepare-database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { secretsKeyOf } from "../app/state-folder.ts";
import { inColumns } from "../app/terminal-text.ts";
import { DAY_SECONDS } from "../model/time.ts";
import { rotateSigningSecret } from "../store/signing-secrets.ts";
import { answer } from "./answer.ts";
import { requireAccount, withDatabase } from "./database.ts";
import { parseId, parseSeconds } from "./options.ts";

export function addSecretCommands(program: Command, context: ProcessContext): void {
  program
    .command("secret")
    .description("rotate signing secrets")
    .command("rotate")
    .description(
      "make a new signing secret; the old one signs along until the overlap ends, any older one ends now",
    )
    .requiredOption("--account <id>", "whose", parseId)
    .addOption(
      new Option("--overlap <time>", "how long the old one signs along; 0s when it has leaked")
        .argParser(parseSeconds(7 * DAY_SECONDS))
        .default(DAY_SECONDS, "24h"),
    )
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        await requireAccount(pool, options.account);
        const secretsKey = await secretsKeyOf(config);
        await requireSecretsKey(pool, secretsKey);
        const made = await rotateSigningSecret(pool, options.account, options.overlap, secretsKey);
        const until = new Date(made.createdAt.getTime() + options.overlap * 1_000).toISOString();
        const value = { signing_secret: made.secret, previous_expires_at: until };
        const words = inColumns({ "signing secret": made.secret, "old one signs until": until });
        answer(context, options, value, words);
      }),
    );
}
