import { readFile } from "node:fs/promises";
import { type Command, InvalidArgumentError } from "commander";
import type { Pool } from "pg";
import { listAccounts } from "../../accounts/accounts-sql.ts";
import type { Config } from "../../base/config/config.ts";
import { isDatabaseUrl } from "../../base/config/kinds.ts";
import { readCell } from "../../base/database/cells.ts";
import { readMigrationNames } from "../../base/database/migrate.ts";
import { createMovePool } from "../../base/database/pools.ts";
import { isSecretsKey } from "../../base/database/sealing.ts";
import { writeQuotas } from "../../base/database/storage.ts";
import { tlsFaultOf } from "../../base/database/transaction.ts";
import { QUOTAS_SET } from "../../base/model/audit.ts";
import { CELL_NAME } from "../../base/model/installation.ts";
import { QUOTA_NAMES, type Quota } from "../../base/model/storage.ts";
import { compareCells, WRONG_TARGET_KEY } from "../../cells/beginning.ts";
import { callOffLostMove, callOffMove, deleteMoved } from "../../cells/calling-off.ts";
import { type Cell, MOVE_PARTS, type Move } from "../../cells/move.ts";
import { moveAccount } from "../../cells/move-account.ts";
import { changeAudited, openAccount } from "../create-api-key.ts";
import { endedByScope, loadSecretsKey, requireAccount, withDatabase } from "../database.ts";
import { inColumns, printResult, tellOnce, textTable, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { addEraseCommand } from "./erasures.ts";
import { parseId, parseName, parseSeconds, WAIT_SECONDS, WAIT_SECONDS_MAX } from "./options.ts";

/** Of the noun `account`. */
function addMoveCommands(account: Command, context: ProcessContext): void {
  account
    .command("move")
    .description("move an account to another cell's database; run it again to continue after an interruption")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option("--to-file <path>", "file with the URL of the target's database")
    .option("--to <url>", "the same as an argument, which others on this machine can read", parseDatabaseUrl)
    .option("--cell <name>", "the target's name, as callers see it (default: its own CELL)")
    .option("--target-secrets-key-file <path>", "file with the target's SECRETS_KEY")
    .option(
      "--wait <time>",
      "how long to wait for transactions and attempts in progress (default: 10m)",
      parseSeconds(WAIT_SECONDS_MAX),
    )
    .option("--cancel", "call off the move, unless the account is already open at the target")
    .option(
      "--target-is-lost",
      "with --cancel: the target will never answer again; refused if the account may be open there",
    )
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      const { account: accountId } = options;
      const tellCalledOff = (text = "Called off: the account is here.") =>
        printResult(context, options, { account_id: accountId, moved_to: null }, text);
      if (options.targetIsLost) {
        if (!options.cancel) throw new UsageError("Use --target-is-lost with --cancel.");
        if (options.to !== undefined || options.toFile !== undefined)
          throw new UsageError("Name the target, or use --target-is-lost, which does not contact it.");
        await withSource(context, (source) => callOffLostMove({ accountId, source }));
        return tellCalledOff();
      }
      await withBothCells(context, options, async (cells) => {
        if (options.cancel) {
          if (await callOffMove({ accountId, ...cells })) return tellCalledOff();
          return tellCalledOff("It was called off before; what was copied to the target is deleted there.");
        }
        const waitMaxMs = (options.wait ?? WAIT_SECONDS) * 1_000;
        const tell = tellOnce(context);
        const onProgress: Move["onProgress"] = (part, detail) =>
          tell(detail === null ? MOVE_PARTS[part] : `${MOVE_PARTS[part]}: ${detail}`);
        const { id } = await moveAccount({ accountId, ...cells, waitMaxMs, onProgress });
        const { targetName } = cells;
        const value = { account_id: accountId, moved_to: targetName, move_id: id };
        const next = `once you have checked it there: sealpost account delete-moved --account ${accountId}`;
        printResult(context, options, value, inColumns({ account: accountId, "moved to": targetName, next }));
      });
    });
  account
    .command("delete-moved")
    .description(
      "delete what is left here of a moved account, except its keys: their callers are told where it is",
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
        const value = accounts.map(({ id, name, createdAt, movedTo, erasedAt }) => ({
          account_id: id,
          name,
          created_at: createdAt.toISOString(),
          cell,
          moved_to: movedTo,
          erased_at: erasedAt?.toISOString() ?? null,
        }));
        const text = value
          .map(({ account_id, created_at, name, moved_to, erased_at }) => {
            const where = moved_to === null ? "" : `  (moved to ${moved_to})`;
            const when = erased_at === null ? "" : `  (erased ${erased_at})`;
            return `${account_id}  ${created_at}  ${name}${where}${when}`;
          })
          .join("\n");
        printResult(context, options, value, text || "No accounts yet.");
      }),
    );
  addQuotaCommand(account, context);
  addMoveCommands(account, context);
  addEraseCommand(account, context);
}

/** Of the noun `account`. */
function addQuotaCommand(account: Command, context: ProcessContext): void {
  account
    .command("quota")
    .description("show what an account has of its quotas in the workspace, and set them")
    .requiredOption("--account <id>", "id of the account", parseId)
    .option(
      "--set <name=number>",
      `how much it may have (${QUOTA_NAMES.join(", ")}); none: any amount; can be repeated`,
      collectQuotas,
    )
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withDatabase(context, async (pool) => {
        const { account: accountId, set } = options;
        await requireAccount(pool, accountId);
        const { findQuotas } = await import("../areas.ts");
        if ((await findQuotas(pool, accountId)) === null)
          throw new UsageError("Quotas are about the workspace, which this database does not have.");
        if (set !== undefined) {
          await changeAudited(pool, QUOTAS_SET, async (tx) => {
            await writeQuotas(tx, accountId, set);
            return { done: null, accountId, details: set };
          });
        }
        const quotas = (await findQuotas(pool, accountId))!;
        const value = {
          account_id: accountId,
          quotas: quotas.map(({ most: max, ...use }) => ({ ...use, max })),
        };
        const rows = quotas.map(({ quota, used, most }) => [quota, String(used), String(most ?? "none")]);
        printResult(context, options, value, textTable(["quota", "used", "may have"], rows));
      }),
    );
}

type QuotaWish = Readonly<Partial<Record<Quota, number | null>>>;

function collectQuotas(text: string, previous: QuotaWish = {}): QuotaWish {
  const [, name, most] = /^(\w+)=(none|\d{1,15})$/.exec(text) ?? [];
  const quota = QUOTA_NAMES.find((one) => one === name);
  if (quota !== undefined) return { ...previous, [quota]: most === "none" ? null : Number(most) };
  throw new InvalidArgumentError(
    `It must be NAME=NUMBER or NAME=none, NAME one of ${QUOTA_NAMES.join(", ")}.`,
  );
}

/** The options that name the other database, and its key. */
type TargetWish = {
  readonly [Name in "to" | "toFile" | "targetSecretsKeyFile" | "cell"]?: string | undefined;
};

/** Runs `work` with the database that the environment names and the one that an account moves to. */
async function withBothCells(
  context: ProcessContext,
  wish: TargetWish,
  work: (cells: Omit<Move, "accountId" | "waitMaxMs" | "onProgress">) => Promise<void>,
): Promise<void> {
  await withSource(context, async (source) => {
    await using pool = createPool(await targetUrlOf(wish), { cell: null });
    const target = { pool, secretsKey: await targetKeyOf(wish) };
    (await pool.connect().catch(explainAway)).release();
    const facts = await compareCells({ source, target }, await readMigrationNames([]));
    if (!(await isSecretsKey(pool, target.secretsKey))) throw new UsageError(WRONG_TARGET_KEY);
    const targetName = nameOf(wish.cell, facts.target.cell);
    const sourceName = facts.source.cell;
    const { findMoveHindrance: findHindrance } = await import("../areas.ts");
    await work({ source, target, targetName, sourceName, findHindrance });
  });
}

/** Runs `work` with the database that the environment names. */
async function withSource(context: ProcessContext, work: (source: Cell) => Promise<void>): Promise<void> {
  const run = async (pool: Pool, config: Config) =>
    await work({ pool, secretsKey: await loadSecretsKey(pool, config) });
  await withDatabase(context, run, createPool);
}

/** @param config of the cell that the database must be of */
function createPool(databaseUrl: string, { cell }: Pick<Config, "cell">) {
  const applicationName = "sealpost account move";
  const onError = () => undefined;
  return endedByScope(createMovePool({ databaseUrl, cell, connectionsMax: 3, applicationName, onError }));
}

async function targetUrlOf({ to, toFile }: TargetWish): Promise<string> {
  if (to !== undefined && toFile !== undefined) throw new UsageError("Use --to, or --to-file.");
  if (to !== undefined) return to;
  if (toFile === undefined) throw new UsageError("Name the target: --to-file PATH, or --to DATABASE_URL.");
  const url = await readSecretFile("--to-file", toFile);
  if (isDatabaseUrl(url)) return url;
  throw new UsageError(
    "The file of --to-file does not hold a PostgreSQL URL such as postgres://user:password@host:5432/name.",
  );
}

async function targetKeyOf({ targetSecretsKeyFile: path }: TargetWish): Promise<Uint8Array> {
  if (path === undefined) {
    throw new UsageError(
      "Give the SECRETS_KEY that the target's secrets are encrypted with: --target-secrets-key-file PATH.",
    );
  }
  const key = Buffer.from(await readSecretFile("--target-secrets-key-file", path), "base64");
  if (key.length !== 32)
    throw new UsageError("The file of the target's key does not hold 32 bytes in base64.");
  return key;
}

async function readSecretFile(option: string, path: string): Promise<string> {
  const text = await readFile(path, "utf8").catch((cause: NodeJS.ErrnoException) => {
    throw new UsageError(`Cannot read ${option}: ${cause.code}.`, { cause });
  });
  return text.trim();
}

function explainAway(cause: NodeJS.ErrnoException): never {
  const fault = tlsFaultOf(cause, "the target's URL")?.replace(/^t/, "T");
  if (fault) throw new UsageError(fault, { cause });
  throw new UsageError(`Cannot reach the target's database (${cause.code ?? "no answer"}).`, { cause });
}

/** Callers may read it: of the form that CELL has, which no address has. */
function nameOf(asked: string | undefined, found: string | null): string {
  const name = asked ?? found;
  if (name === null) throw new UsageError("The target has no name of its own: give one with --cell NAME.");
  if (found !== null && name !== found) {
    throw new UsageError(`The target is the cell "${found}", not the one that --cell names.`);
  }
  if (CELL_NAME.pattern.test(name)) return name;
  throw new UsageError(`--cell must be ${CELL_NAME.rule}.`);
}
