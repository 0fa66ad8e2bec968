import type { Command } from "@commander-js/extra-typings";
import { requireSecretsKey } from "../app/prepare-database.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { secretsKeyOf } from "../app/state-folder.ts";
import { inColumns } from "../app/terminal-text.ts";
import { createAccount, listAccounts } from "../store/accounts.ts";
import { answer } from "./answer.ts";
import { withDatabase } from "./database.ts";
import { parseName } from "./options.ts";

export function addAccountCommands(program: Command, context: ProcessContext): void {
  const account = program.command("account").description("make and list accounts, the tenants");
  account
    .command("create")
    .description("make an account with its first signing secret")
    .requiredOption("--name <name>", "what people call it", parseName)
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const secretsKey = await secretsKeyOf(config);
        await requireSecretsKey(pool, secretsKey);
        const { accountId, signingSecret } = await createAccount(pool, options.name, secretsKey);
        const words = inColumns({ account: accountId, "signing secret": signingSecret });
        answer(context, options, { account_id: accountId, signing_secret: signingSecret }, words);
      }),
    );
  account
    .command("list")
    .description("list all accounts, the newest first")
    .option("--json", "answer in JSON, on a terminal too")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const accounts = await listAccounts(pool);
        const shown = accounts.map(({ id, name, createdAt }) => ({
          account_id: id,
          name,
          created_at: createdAt.toISOString(),
        }));
        const words = shown.map((one) => `${one.account_id}  ${one.created_at}  ${one.name}`).join("\n");
        answer(context, options, shown, words || "There is no account yet.");
      }),
    );
}
