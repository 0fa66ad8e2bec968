import { randomUUID } from "node:crypto";
import { readFile, realpath, rename, rm, stat, writeFile } from "node:fs/promises";
import { text as textOf } from "node:stream/consumers";
import type { Command } from "commander";
import type { Pool } from "pg";
import { analysisId as analysisIdOf } from "../../api/fields.ts";
import type { Config } from "../../base/config/config.ts";
import { createMovePool } from "../../base/database/pools.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { isUuid } from "../../base/model/formats.ts";
import { type Erased, eraseAccount } from "../../cells/erase-account.ts";
import { listErasures } from "../../cells/erasures-sql.ts";
import { eraseAnalysis, knowAsErased } from "../../delivery/erase-sql.ts";
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
    .option("--file <path>", "add to this file what it lacks, instead of printing; it loses nothing")
    .action(({ since = null, file }) =>
      withDatabase(context, async (pool) => {
        const lines = (await listErasures(pool, since)).map((erasure) => `${JSON.stringify(erasure)}\n`);
        if (file === undefined) context.stdout.write(lines.join(""));
        else await addToFile(file, lines);
      }),
    );
  erasures
    .command("reapply")
    .description("after a restore from a backup, erase again what such a list names")
    .requiredOption("--file <path>", "file with the list; -: standard input")
    .option("--wait <time>", "how long to wait for transactions in progress (default: 10m)", parseWait)
    .option("--json", "print JSON, even on a terminal")
    .action(async (options) => {
      const { stdin } = context;
      const text = await (options.file === "-" ? textOf(stdin) : readFile(options.file, "utf8")).catch(
        cannot("read"),
      );
      const wanted = readList(text);
      if (wanted.length === 0)
        throw new UsageError("The list is empty: nothing was done. Is it the one that was kept?");
      const { eraseFromRuns } = await import("../areas.ts");
      await withErasing(context, options.wait, async (pool, erase) => {
        const counts = { accounts_erased: 0, analyses_erased: 0, unknown: 0 };
        const refused: UsageError[] = [];
        for (const { accountId, analysisId } of wanted) {
          if (analysisId !== null) {
            const isErased = await inTransaction(pool, async (tx) => {
              const erased = await eraseAnalysis(tx, eraseFromRuns, accountId, analysisId, "reapplying");
              return erased !== null || (await knowAsErased(tx, accountId, analysisId));
            });
            counts[isErased ? "analyses_erased" : "unknown"]++;
            continue;
          }
          // One that fails keeps nobody else's text.
          const outcome = await erase(accountId, null).then(
            (done) => done.outcome,
            (error: unknown) => new UsageError(`Account ${accountId} could not be erased: ${error}`),
          );
          if (outcome === "erased") counts.accounts_erased++;
          else if (outcome === "unknown" || outcome === "moved") counts.unknown++;
          else refused.push(outcome instanceof UsageError ? outcome : refusalOf(accountId, outcome));
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

type Wanted = { readonly accountId: string; readonly analysisId: string | null };

const keyOf = ({ accountId, analysisId }: Wanted) => `${accountId} ${analysisId ?? ""}`;

const cannot = (what: "read" | "written") => (cause: NodeJS.ErrnoException) => {
  throw new UsageError(`The file that --file names cannot be ${what} (${cause.code}).`, { cause });
};

/**
 * The file keeps what the database does not know any more: one that was restored, or that has forgotten analyses with
 * its log. (To refuse a list that lacks something would have refused every one after that.) It is replaced as a whole.
 * @throws UsageError that names a bad line, for a file that is something else
 */
async function addToFile(file: string, lines: readonly string[]): Promise<void> {
  // What a link leads to is replaced, and who may read it stays.
  const path = await realpath(file).catch(() => file);
  const mode = (await stat(path).catch(() => null))?.mode ?? 0o600;
  const text = await readFile(path, "utf8").catch((cause: NodeJS.ErrnoException) =>
    cause.code === "ENOENT" ? "" : cannot("read")(cause),
  );
  const known = new Set(readList(text).map(keyOf));
  const added = lines.filter((line) => !known.has(keyOf(readLine(line)!)));
  const draft = `${path}.${randomUUID()}`;
  try {
    await writeFile(draft, text.replace(/(?<!\n)$/, text && "\n") + added.join(""), {
      flag: "wx",
      mode,
      flush: true,
    });
    await rename(draft, path);
  } catch (cause) {
    await rm(draft, { force: true });
    cannot("written")(cause as NodeJS.ErrnoException);
  }
}

/** Accounts first: what is erased with one is not looked for by itself. @throws UsageError that names a bad line */
function readList(text: string): readonly Wanted[] {
  const wanted = text.split("\n").flatMap((line, n) => {
    if (line.trim() === "") return [];
    const read = readLine(line);
    if (read === null) {
      throw new UsageError(
        `Line ${n + 1} of the list is not one that \`sealpost erasures list\` prints: nothing was done.`,
      );
    }
    return [read];
  });
  return wanted.toSorted((a, b) => Number(a.analysisId !== null) - Number(b.analysisId !== null));
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
