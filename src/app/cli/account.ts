import { type Command, InvalidArgumentError } from "commander";
import { listAccounts } from "../../accounts/accounts-sql.ts";
import { isDatabaseUrl } from "../../base/config/kinds.ts";
import { readCell } from "../../base/database/cells.ts";
import { callOffLostMove, callOffMove, deleteMoved } from "../../cells/calling-off.ts";
import type { MovePart } from "../../cells/move.ts";
import { moveAccount } from "../../cells/move-account.ts";
import { withBothCells, withSource } from "../account-moving.ts";
import { openAccount } from "../create-api-key.ts";
import { loadSecretsKey, withDatabase } from "../database.ts";
import { inColumns, printResult, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId, parseName, parseSeconds } from "./options.ts";

const WAIT_SECONDS = 600;
const WAIT_SECONDS_MAX = 86_400;

/** Of the noun `account`. */
function addMoveCommands(account: Command, context: ProcessContext): void {
  account
    .command("move")
    .description("move an account to another cell's database; run it again to continue after an interruption")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--to-file <path>", "file with the URL of the target's database")
    .option("--to <url>", "the same as an argument, which others on this machine can read", parseDatabaseUrl)
    .option("--cell <name>", "the target's name, as callers see it (default: its own, CELL)")
    .option("--target-secrets-key-file <path>", "file with the target's SECRETS_KEY")
    .option(
      "--wait <time>",
      "how long to wait for transactions and attempts in progress (default: 10m)",
      parseSeconds(WAIT_SECONDS_MAX),
    )
    .option("--cancel", "call the move off, if the account is not open at the target yet")
    .option(
      "--target-is-lost",
      "with --cancel: the target will never answer again; refused where the account may be open there",
    )
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      const { account: accountId } = options;
      const tellCalledOff = () =>
        printResult(
          context,
          options,
          { account_id: accountId, moved_to: null },
          "Called off: the account is here.",
        );
      if (options.targetIsLost) {
        if (!options.cancel) throw new UsageError("Use --target-is-lost with --cancel.");
        if (options.to !== undefined || options.toFile !== undefined)
          throw new UsageError("Name the target, or use --target-is-lost, which does not contact it.");
        await withSource(context, (source) => callOffLostMove({ accountId, source }));
        tellCalledOff();
        return;
      }
      await withBothCells(context, options, async (cells) => {
        if (options.cancel) {
          await callOffMove({ accountId, ...cells });
          tellCalledOff();
          return;
        }
        const { id } = await moveAccount({
          accountId,
          ...cells,
          waitMaxMs: (options.wait ?? WAIT_SECONDS) * 1_000,
          onProgress: tellOnce((line) => context.stderr.write(`${line}\n`)),
        });
        const { targetName } = cells;
        const value = { account_id: accountId, moved_to: targetName, move_id: id };
        const next = `once you have checked it there: sealpost account delete-moved --account ${accountId}`;
        printResult(context, options, value, inColumns({ account: accountId, "moved to": targetName, next }));
      });
    });
  account
    .command("delete-moved")
    .description(
      "delete what is left here of an account that was moved, but for its keys, which are told where it is",
    )
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withSource(context, async (source) => {
        const rows = await deleteMoved(source, options.account);
        const value = { account_id: options.account, rows_deleted: rows };
        printResult(context, options, value, `Deleted ${rows} rows, and what belonged to them.`);
      }),
    );
}

function parseDatabaseUrl(text: string): string {
  if (isDatabaseUrl(text)) return text;
  throw new InvalidArgumentError("It must be a PostgreSQL URL such as postgres://user@host:5432/name.");
}

const TOLD: Readonly<Record<MovePart, string>> = {
  prepare: "starting, or continuing",
  close: "closing the account: publishing and writes are refused from now on",
  wait_for_transactions: "waiting for older transactions to end",
  park: "parking what is open",
  wait_for_feed: "waiting until the feed holds everything",
  still: "the account no longer changes",
  copy: "copying",
  compare: "comparing",
  open: "opening the account at the target",
  finish: "finishing",
};

/** Not the same line twice: a table has many pages, and waiting takes many looks. */
function tellOnce(write: (line: string) => void): (part: MovePart, detail: string | null) => void {
  let last = "";
  return (part, detail) => {
    const line = detail === null ? TOLD[part] : `${TOLD[part]}: ${detail}`;
    if (line !== last) write(line);
    last = line;
  };
}

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
        const value = accounts.map(({ id, name, createdAt, movedTo }) => ({
          account_id: id,
          name,
          created_at: createdAt.toISOString(),
          cell,
          moved_to: movedTo,
        }));
        const text = value
          .map(({ account_id, created_at, name, moved_to }) => {
            const where = moved_to === null ? "" : `  (moved to ${moved_to})`;
            return `${account_id}  ${created_at}  ${name}${where}`;
          })
          .join("\n");
        printResult(context, options, value, text || "No accounts yet.");
      }),
    );
  addMoveCommands(account, context);
}
