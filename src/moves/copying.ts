import { setTimeout as delay } from "node:timers/promises";
import {
  type Copied,
  countRows,
  idsOf,
  type Page,
  PageReader,
  readCopied,
  writeCopied,
  writePage,
} from "../store/move-pages.ts";
import { resealPage } from "../store/move-seals.ts";
import { type AccountTable, LOG_TABLES } from "../store/move-tables.ts";
import { makePartitionsSince, readFirstDay } from "../store/partitions.ts";
import { inTransaction } from "../store/transaction.ts";
import { calledOff } from "./beginning.ts";
import type { Move } from "./move.ts";
import { MoveRefusedError } from "./move-refused-error.ts";

/**
 * Copies all rows that only have to be there, page by page, each in a transaction that also says how far it has come.
 * Between two pages it rests for as long as a page takes: half of a core is everybody else's.
 */
export async function copyLog(move: Move, moveId: string): Promise<void> {
  const { accountId, source, target, onProgress } = move;
  const reader = new PageReader(source.pool, accountId);
  const firstDay = await readFirstDay(source.pool, accountId);
  if (firstDay !== null) await makePartitionsSince(target.pool, firstDay);
  let copied = await readCopied(target.pool, accountId);
  for (const table of LOG_TABLES) {
    for (let after = placeOf(copied, table); after !== "all"; after = placeOf(copied, table)) {
      onProgress("copy", table.name);
      const startedAtMs = performance.now();
      const page = await reader.readPage(table, after);
      copied = { ...copied, [table.name]: page.next ?? "all" };
      await copyPage(move, moveId, { reader, table, page, copied });
      await delay(performance.now() - startedAtMs);
    }
  }
}

function placeOf(copied: Copied, { name }: AccountTable): readonly string[] | "all" | null {
  return copied[name] ?? null;
}

type PageCopy = {
  readonly reader: PageReader;
  readonly table: AccountTable;
  readonly page: Page;
  readonly copied: Copied;
};

async function copyPage(
  move: Move,
  moveId: string,
  { reader, table, page, copied }: PageCopy,
): Promise<void> {
  const { accountId, source, target } = move;
  await inTransaction(target.pool, async (tx) => {
    const write = (one: Page) => writePage(tx, resealPage(one, source.secretsKey, target.secretsKey));
    await write(page);
    if (page.rows.length > 0) {
      for (const child of table.children ?? []) {
        let after: readonly string[] | null = null;
        do {
          const children = await reader.readChildren(child, idsOf(page), after);
          await write(children);
          after = children.next;
        } while (after !== null);
      }
    }
    if (await writeCopied(tx, accountId, moveId, copied)) return;
    throw calledOff(accountId);
  });
}

/** @throws MoveRefusedError when rows are missing at the target; then the next run copies everything again */
export async function compareCounts({ accountId, source, target }: Move, moveId: string): Promise<void> {
  for (const table of LOG_TABLES) {
    const [there, here] = await Promise.all([
      countRows(target.pool, table, accountId),
      countRows(source.pool, table, accountId),
    ]);
    // The source forgets what is too old, and so does the target.
    if (there >= here) continue;
    await inTransaction(target.pool, (tx) => writeCopied(tx, accountId, moveId, {}));
    throw new MoveRefusedError(
      `The target has ${there} of ${here} rows of ${table.name}. Run the same command again, ` +
        "which copies what is missing.",
    );
  }
}
