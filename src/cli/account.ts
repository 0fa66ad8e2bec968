import type { Command } from "@commander-js/extra-typings";
import { openAccount } from "../app/command-line-changes.ts";
import { loadSecretsKey, withDatabase } from "../app/database.ts";
import { inColumns, printResult } from "../app/output.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { listAccounts } from "../store/accounts.ts";
import { readCell } from "../store/cells.ts";
import { parseName } from "./options.ts";

export function addAccountCommands(program: Command, context: ProcessContext): void {
  const account = program.command("account").description("manage accounts (tenants)");
  account
    .command("create")
    .description("add an account, with its first signing secret")
    .requiredOption("--name <name>", "display name", parseName)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const secretsKey = await loadSecretsKey(pool, config);
        const { accountId, signingSecret } = await openAccount(pool, options.name, secretsKey);
        const text = inColumns({ account: accountId, "signing secret": signingSecret });
        printResult(context, options, { account_id: accountId, signing_secret: signingSecret }, text);
      }),
    );
  account
    .command("list")
    .description("list all accounts, newest first")
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const accounts = await listAccounts(pool);
        const cell = await readCell(pool);
        const value = accounts.map(({ id, name, createdAt }) => ({
          account_id: id,
          name,
          created_at: createdAt.toISOString(),
          cell,
        }));
        const text = value.map((one) => `${one.account_id}  ${one.created_at}  ${one.name}`).join("\n");
        printResult(context, options, value, text || "No accounts yet.");
      }),
    );
}
