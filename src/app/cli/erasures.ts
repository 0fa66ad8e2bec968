import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { constants, createReadStream } from "node:fs";
import { copyFile, open, realpath, rename, rm, stat } from "node:fs/promises";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import type { Command } from "commander";
import type { Pool } from "pg";
import { analysisId as analysisIdOf } from "../../api/fields.ts";
import type { Config } from "../../base/config/config.ts";
import { createMovePool } from "../../base/database/pools.ts";
import { inTransaction, tlsFaultOf } from "../../base/database/transaction.ts";
import { isUuid } from "../../base/model/formats.ts";
import { type Erased, eraseAccount } from "../../cells/erase-account.ts";
import { listErasures, type StoredErasure } from "../../cells/erasures-sql.ts";
import { type EraseFromRuns, eraseAnalysis, knowAsErased } from "../../delivery/erase-sql.ts";
import { endedByScope, unknownAccount, withDatabase } from "../database.ts";
import { printResult, tellOnce, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { parseId, parseName, parseSeconds, parseTime, WAIT_SECONDS, WAIT_SECONDS_MAX } from "./options.ts";

const parseWait = parseSeconds(WAIT_SECONDS_MAX);

/** Of the noun `account`. */
export function addEraseCommand(account: Command, context: ProcessContext): void {
  account
    .command("erase")
    .description("erase an account for good, with all it has; run it again to continue after an interruption")
    .requiredOption("--account <id>", "id of the account", parseId)
    .requiredOption("--confirm <name>", "the account's name", parseName)
    .option("--wait <time>", "how long to wait for transactions in progress (default: 10m)", parseWait)
    .option("--json", "print JSON, even on a terminal")
    .action((options) =>
      withErasing(context, options.wait, async (_pool, erase) => {
        const { account: accountId } = options;
        const erased = await erase(accountId, options.confirm);
        if (erased.outcome !== "erased") throw refusalOf(accountId, erased.outcome);
        const { erasedAt, objectsLeft, cameFrom } = erased;
        const value = {
          account_id: accountId,
          erased_at: erasedAt,
          objects_left: objectsLeft,
          came_from: cameFrom,
        };
        const cells = cameFrom.map((cell) => `"${cell}"`).join(", ");
        const there =
          cells === ""
            ? ""
            : `\nOther cells may have something of it: ${cells}. \`account delete-moved\` there deletes what a move ` +
              "from there has left, and `account move --cancel` here what one to there that was called off had copied.";
        const left =
          objectsLeft === 0
            ? ""
            : `\nThe keys of ${objectsLeft} objects stay for a day or two: an upload that was under way may still ` +
              "store one of them, and `dispatch` removes it then, with its key.";
        printResult(context, options, value, `Account ${accountId} is erased.${left}${there}`);
      }),
    );
}

export function addErasuresCommands(program: Command, context: ProcessContext): void {
  const erasures = program
    .command("erasures")
    .description("see what was erased, and erase it again after a restore");
  erasures
    .command("list")
    .description(
      "list what was erased, oldest first, a line of JSON each: to be kept apart from the database",
    )
    .option("--since <time>", "only from an hour before this time on, such as 2026-11-22T10:00Z", parseTime)
    .option("--file <path>", "add to this file, of this database alone, what it lacks, instead of printing")
    .action(({ since = null, file }) =>
      withDatabase(context, async (pool) => {
        const pages = listErasures(pool, since);
        if (file !== undefined) return await addToFile(file, pages);
        for await (const page of pages)
          if (!context.stdout.write(page.map(lineOf).join(""))) await once(context.stdout, "drain");
      }),
    );
  erasures
    .command("reapply")
    .description("after a restore from a backup, erase again what such a list names")
    .requiredOption("--file <path>", "file with the list; -: standard input")
    .option("--wait <time>", "how long to wait for transactions in progress (default: 10m)", parseWait)
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      // Accounts first: what is erased with one is not looked for by itself.
      const [accounts, analyses]: [string[], OfAnalysis[]] = [[], []];
      const list = options.file === "-" ? context.stdin : createReadStream(options.file);
      for await (const { accountId, analysisId } of readList(list)) {
        if (analysisId === null) accounts.push(accountId);
        else analyses.push({ accountId, analysisId });
      }
      if (accounts.length + analyses.length === 0)
        throw new UsageError("The list is empty: nothing was done. Is it the one that was kept?");
      await withErasing(context, options.wait, async (pool, erase) => {
        const counts = { accounts_erased: 0, analyses_erased: 0, unknown: 0 };
        const refused: UsageError[] = [];
        for (const accountId of accounts) {
          // One that fails keeps nobody else's text.
          const outcome = await erase(accountId, null).then(
            (done) => done.outcome,
            (error: unknown) =>
              new UsageError(`Account ${accountId} could not be erased: ${tlsFaultOf(error) ?? error}`),
          );
          if (outcome === "erased") counts.accounts_erased++;
          else if (outcome === "unknown" || outcome === "moved") counts.unknown++;
          else refused.push(outcome instanceof UsageError ? outcome : refusalOf(accountId, outcome));
        }
        const { eraseFromRuns } = await import("../areas.ts");
        for (const [n, analysis] of analyses.entries()) {
          if (n > 0 && n % TOLD_EVERY === 0)
            context.stderr.write(`${n} of ${analyses.length} analyses are done\n`);
          const isErased = await eraseAgain(pool, eraseFromRuns, analysis);
          counts[isErased ? "analyses_erased" : "unknown"]++;
        }
        const { accounts_erased, analyses_erased, unknown } = counts;
        const text = `Erased ${accounts_erased} accounts and ${analyses_erased} analyses; ${unknown} are unknown here.`;
        printResult(context, options, counts, text);
        if (refused.length > 0) throw new UsageError(refused.map(({ message }) => message).join("\n"));
      });
    });
}

type Erase = (accountId: string, name: string | null) => Promise<Erased>;

/** Runs `work` with what erases accounts of the environment's database. @param waitSeconds absent: ten minutes */
async function withErasing(
  context: ProcessContext,
  waitSeconds: number | undefined,
  work: (pool: Pool, erase: Erase) => Promise<void>,
): Promise<void> {
  const { eraseFromAreas } = await import("../areas.ts");
  const onProgress = tellOnce(context);
  const run = async (pool: Pool, config: Config) =>
    await work(pool, (accountId, name) =>
      eraseAccount({
        pool,
        accountId,
        name,
        waitMaxMs: (waitSeconds ?? WAIT_SECONDS) * 1_000,
        eraseFromAreas: (onPage) => eraseFromAreas(pool, config, accountId, onPage),
        onProgress,
        tooLong: (seconds, whom) =>
          new UsageError(
            `Account ${accountId} is closed, but not all of it is erased after ${seconds} s of waiting for ${whom}. ` +
              "Run the same command again, which continues here.",
          ),
      }),
    );
  await withDatabase(context, run, (databaseUrl, { cell }) => {
    const onError = () => undefined;
    const options = { connectionsMax: 2, applicationName: "sealpost account erase", onError };
    return endedByScope(createMovePool({ databaseUrl, cell, ...options }));
  });
}

function refusalOf(accountId: string, outcome: Exclude<Erased["outcome"], "erased">): UsageError {
  switch (outcome) {
    case "unknown":
      return unknownAccount(accountId);
    case "other_name":
      return new UsageError(
        `Account ${accountId} has another name than --confirm says, and nothing was done: \`sealpost account list\` ` +
          "shows it.",
      );
    case "arriving":
      return new UsageError(
        `Account ${accountId} is being moved here: finish that, or call it off at the other cell. If it was ` +
          "erased before a restore, `sealpost erasures reapply` with the line that says so erases what is here.",
      );
    case "moving":
      return new UsageError(
        `Account ${accountId} is being moved to another cell: call that off with \`sealpost account move --cancel\`, ` +
          "or finish it and erase the account there.",
      );
    case "left":
      return new UsageError(
        `Account ${accountId} has moved to another cell: delete what it has left here with \`sealpost account ` +
          "delete-moved`, and erase it there.",
      );
    case "moved":
      return new UsageError(`Account ${accountId} has moved to another cell: erase it there.`);
    default:
      throw new Error(`An outcome of unknown kind: ${outcome satisfies never}`);
  }
}

type OfAnalysis = { readonly accountId: string; readonly analysisId: string };
type Wanted = Omit<OfAnalysis, "analysisId"> & { readonly analysisId: string | null };

const keyOf = (accountId: string, analysisId: string | null) => `${accountId} ${analysisId ?? ""}`;
const lineOf = (erasure: StoredErasure) => `${JSON.stringify(erasure)}\n`;

const TOLD_EVERY = 10_000;

/**
 * False: the account is not known. In a transaction of its own: after a failover everything runs, and whoever has the
 * lock of one keeps nothing else waiting.
 */
async function eraseAgain(pool: Pool, fromRuns: EraseFromRuns, of: OfAnalysis): Promise<boolean> {
  const { accountId, analysisId } = of;
  return await inTransaction(pool, async (tx) => {
    const erase = () => eraseAnalysis(tx, fromRuns, accountId, analysisId, "reapplying");
    const isDone = (await erase()) !== null || (await knowAsErased(tx, accountId, analysisId));
    // Neither there nor unknown: somebody has published it in between.
    return isDone || (await erase()) !== null;
  });
}

const cannot = (what: "read" | "written") => (cause: NodeJS.ErrnoException) => {
  throw new UsageError(`The file that --file names cannot be ${what} (${cause.code}).`, { cause });
};

/**
 * The file keeps what the database does not know any more: one that was restored, or that has forgotten analyses with
 * its log. (To refuse a list that lacks something would have refused every one after that.) It is replaced as a whole.
 * @throws UsageError that names a bad line, for a file that is something else
 */
async function addToFile(file: string, pages: AsyncIterable<readonly StoredErasure[]>): Promise<void> {
  // What a link leads to is replaced, and who may read it stays.
  const path = await realpath(file).catch(() => file);
  const hasBegun = await stat(path).then(
    () => true,
    (cause: NodeJS.ErrnoException) => (cause.code === "ENOENT" ? false : cannot("read")(cause)),
  );
  const known = new Set<string>();
  const list = hasBegun ? readList(createReadStream(path)) : [];
  for await (const { accountId, analysisId } of list) known.add(keyOf(accountId, analysisId));
  const draft = `${path}.${randomUUID()}`;
  try {
    if (hasBegun) await copyFile(path, draft, constants.COPYFILE_EXCL).catch(cannot("written"));
    await using added = await open(draft, hasBegun ? "a+" : "wx+", 0o600).catch(cannot("written"));
    const write = (text: string) => added.appendFile(text).catch(cannot("written"));
    const { size } = await added.stat();
    const { buffer } = await added.read(Buffer.alloc(1), 0, 1, Math.max(0, size - 1));
    if (size > 0 && buffer.toString() !== "\n") await write("\n");
    for await (const page of pages) {
      const lacks = page.filter((one) => !known.has(keyOf(one.account_id, one.analysis_id)));
      await write(lacks.map(lineOf).join(""));
    }
    await added.sync();
    await rename(draft, path).catch(cannot("written"));
  } finally {
    await rm(draft, { force: true });
  }
}

/** @throws UsageError that names a bad line, or says why it cannot be read */
async function* readList(list: Readable): AsyncGenerator<Wanted> {
  let n = 0;
  try {
    for await (const line of createInterface({ input: list, crlfDelay: Number.POSITIVE_INFINITY })) {
      n++;
      if (line.trim() === "") continue;
      const read = readLine(line);
      if (read === null) {
        throw new UsageError(
          `Line ${n} of the list is not one that \`sealpost erasures list\` prints: nothing was done.`,
        );
      }
      yield read;
    }
  } catch (error) {
    if (error instanceof UsageError) throw error;
    cannot("read")(error as NodeJS.ErrnoException);
  }
}

function readLine(line: string): Wanted | null {
  try {
    const { account_id: accountId, analysis_id: analysisId, erased_at: erasedAt } = JSON.parse(line);
    const isRead =
      isUuid(accountId) &&
      (analysisId === null || analysisIdOf.safeParse(analysisId).success) &&
      Number.isFinite(Date.parse(erasedAt));
    return isRead ? { accountId, analysisId } : null;
  } catch {
    return null;
  }
}
