import type { Command } from "@commander-js/extra-typings";
import { createAccount } from "../store/accounts.ts";
import { answer, inColumns } from "./answer.ts";
import { withDatabase } from "./database.ts";
import { parseName } from "./options.ts";
import { secretsKeyOf } from "./state-folder.ts";
import type { Surroundings } from "./surroundings.ts";

export function addAccountCommands(program: Command, surroundings: Surroundings): void {
  program
    .command("account")
    .description("about accounts, the tenants")
    .command("create")
    .description("make an account with its first signing secret")
    .requiredOption("--name <name>", "what people call it", parseName)
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(surroundings, async (pool, config) => {
        const secretsKey = await secretsKeyOf(config);
        const { accountId, signingSecret } = await createAccount(pool, options.name, secretsKey);
        const words = inColumns({ account: accountId, "signing secret": signingSecret });
        answer(surroundings, options, { account_id: accountId, signing_secret: signingSecret }, words);
      }),
    );
}
