import type { Command } from "commander";
import type { AccountAuditEntry } from "../../accounts/accounts-schema.ts";
import { listAuditEntries } from "../../accounts/audit-sql.ts";
import { ACTOR_KINDS } from "../../base/model/audit.ts";
import { withDatabase } from "../database.ts";
import { printResult } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId, parseTime, parseWholeNumber } from "./options.ts";

const ENTRIES_MAX = 10_000;
const ENTRIES_DEFAULT = 100;

export function addAuditCommands(program: Command, context: ProcessContext): void {
  program
    .command("audit")
    .description("see who changed what")
    .command("list")
    .description("list changes through the API and the command line, newest first")
    .option("--account <id>", "only this account's (default: all, and those of no account)", parseId)
    .option("--operation <key>", "only this operation's, such as webhooks.endpoint.set")
    .option("--actor <actor>", `a key's id, or ${ACTOR_KINDS.join(", ")}`, parseActor)
    .option("--after <time>", "only at or after this time, such as 2026-11-22T10:00Z", parseTime)
    .option("--before <time>", "only before this time", parseTime)
    .option("--limit <n>", "maximum number", parseWholeNumber(1, ENTRIES_MAX), ENTRIES_DEFAULT)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const { account: accountId = null, operation: operationKey = null, actor = null } = options;
        const { after: createdAfter = null, before: createdBefore = null } = options;
        const filter = {
          accountId,
          operationKey,
          actor,
          createdAfter,
          createdBefore,
          withoutOpenings: false,
        };
        const entries: AccountAuditEntry[] = [];
        let place: Parameters<typeof listAuditEntries>[2] = null;
        do {
          const page = await listAuditEntries(pool, filter, place, options.limit - entries.length);
          entries.push(...page.items);
          place = page.next;
        } while (place !== null && entries.length < options.limit);
        const value = entries.map(({ account, ...entry }) => ({ account_id: account?.id ?? null, ...entry }));
        const text = entries.map(entryText).join("\n");
        printResult(context, options, value, text || "Nothing has been changed.");
      }),
    );
}

function entryText({ at, account, operation, actor, details }: AccountAuditEntry): string {
  const key = actor.key_id === null ? "" : ` ${actor.name ?? "(unnamed)"} ${actor.key_id}`;
  const user = actor.user === null ? "" : ` of ${actor.user.name} ${actor.user.id}`;
  const whose = account === null ? "no account" : `account ${account.id}`;
  return `${at}  ${whose}  ${operation}  ${actor.kind}${key}${user}  ${JSON.stringify(details)}`;
}

function parseActor(text: string): string {
  return ACTOR_KINDS.some((kind) => kind === text) ? text : parseId(text);
}
