import { type Command, Option } from "@commander-js/extra-typings";
import { rotateSigningSecret } from "../store/signing-secrets.ts";
import { answer, inColumns } from "./answer.ts";
import { requireAccount, requireSecretsKey, withDatabase } from "./database.ts";
import { parseId, parseSeconds } from "./options.ts";
import { secretsKeyOf } from "./state-folder.ts";
import type { Surroundings } from "./surroundings.ts";

const daySeconds = 86_400;

export function addSecretCommands(program: Command, surroundings: Surroundings): void {
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
        .argParser(parseSeconds(7 * daySeconds))
        .default(daySeconds, "24h"),
    )
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(surroundings, async (pool, config) => {
        await requireAccount(pool, options.account);
        const secretsKey = await secretsKeyOf(config);
        await requireSecretsKey(pool, secretsKey);
        const made = await rotateSigningSecret(pool, options.account, options.overlap, secretsKey);
        const until = new Date(made.createdAt.getTime() + options.overlap * 1_000).toISOString();
        const value = { signing_secret: made.secret, previous_expires_at: until };
        const words = inColumns({ "signing secret": made.secret, "old one signs until": until });
        answer(surroundings, options, value, words);
      }),
    );
}
