import type { Command } from "commander";
import { type KeptConsumer, listConsumers, removeConsumer } from "../../feed/feed-sql.ts";
import { changeAudited } from "../create-api-key.ts";
import { requireAccount, withDatabase } from "../database.ts";
import { printResult, textTable, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId } from "./options.ts";

export function addConsumerCommands(program: Command, context: ProcessContext): void {
  const consumer = program
    .command("consumer")
    .description("see and remove the names under which programs read an account's events");
  consumer
    .command("list")
    .description("list an account's consumers, how far each has come and what is behind it")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool, { analysisRetentionSeconds }) => {
        await requireAccount(pool, options.account);
        const kept = await listConsumers(pool, options.account, analysisRetentionSeconds * 1_000);
        const head = ["name", "behind", "since", "read to", "last acknowledged", "two readers seen"];
        const text = kept.length === 0 ? "No consumers yet." : textTable(head, kept.map(cellsOf));
        printResult(context, options, kept, text);
      }),
    );
  consumer
    .command("remove")
    .description("forget how far a consumer has come: its reader begins at the oldest event that is kept")
    .requiredOption("--account <id>", "id of the account", parseId)
    .requiredOption("--name <name>", "the consumer's name")
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const { account: accountId, name } = options;
        await requireAccount(pool, accountId);
        await changeAudited(pool, "webhooks.events.consumers.remove", async (tx) => {
          const done = await removeConsumer(tx, accountId, name);
          if (!done)
            throw new UsageError("The account has no such consumer; `sealpost consumer list` lists all.");
          return { done, accountId, details: { name } };
        });
        printResult(context, options, { name }, "Removed.");
      }),
    );
}

function cellsOf({ name, events_behind, expired, ...times }: KeptConsumer): readonly string[] {
  const { behind_since, read_to, updated_at, other_seen_at } = times;
  const behind = `${events_behind}${expired ? ", expired" : ""}`;
  return [name, behind, behind_since ?? "", read_to, updated_at, other_seen_at ?? ""];
}
