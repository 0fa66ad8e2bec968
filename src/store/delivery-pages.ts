import { hash } from "node:crypto";
import type { ClientBase, Pool } from "pg";
import { type CappedPage, cutPage, TOTAL_MAX } from "../model/list-page.ts";
import type { Reader } from "../model/reader.ts";
import { type LoggedDelivery, loggedDeliveries } from "./deliveries.ts";
import { type DeliveryFilter, isEverything } from "./delivery-filter.ts";
import type { ReadLog } from "./log-reader.ts";
import { createLongLogs } from "./long-logs.ts";
import { type PageRow, pageOfLongLog, pageStatement, type Statement } from "./page-statements.ts";

/**
 * A page of the log as the reader sees it, newest first, in one statement; in two when a day has just left a long log.
 *
 * @param belowId the page's cursor: only older deliveries; null: from the newest
 * @param limit 1 to 100
 */
export type ListDeliveries = (
  reader: Reader,
  filter: DeliveryFilter,
  belowId: string | null,
  limit: number,
) => Promise<CappedPage<LoggedDelivery>>;

/** @param monotonicMs milliseconds that only ever grow */
export function createListDeliveries(readLog: ReadLog, monotonicMs: () => number): ListDeliveries {
  const longLogs = createLongLogs(monotonicMs);

  async function read(
    database: Pool | ClientBase,
    { text, values }: Statement,
  ): Promise<PageRow | undefined> {
    const { rows } = await database.query<PageRow>({
      // One prepared statement per set of filters that occurs.
      name: `list_deliveries_${hash("sha256", text, "base64url").slice(0, 16)}`,
      text,
      values: [...values],
    });
    return rows[0];
  }

  /** Undefined for a log that is not known to be long, or is no longer, because a day has left it. */
  async function readLong(
    database: Pool | ClientBase,
    accountId: string,
    belowId: string | null,
    rowsMax: number,
  ): Promise<PageRow | undefined> {
    const longBy = longLogs.find(accountId);
    if (longBy === null) return undefined;
    const row = await read(database, pageOfLongLog(accountId, belowId, rowsMax, longBy));
    if (row === undefined) longLogs.forget(accountId);
    return row;
  }

  async function readCounted(
    database: Pool | ClientBase,
    reader: Reader,
    filter: DeliveryFilter,
    belowId: string | null,
    rowsMax: number,
  ): Promise<PageRow> {
    const row = (await read(database, pageStatement(reader, filter, belowId, rowsMax)))!;
    if (row.long_by) longLogs.remember(reader.accountId, row.long_by);
    return row;
  }

  return async (reader, filter, belowId, limit) => {
    // One more than a page has, which tells whether there is another.
    const rowsMax = limit + 1;
    const row = await readLog(async (database) => {
      const isWhole = isEverything(filter) && reader.spaceIds === null;
      const known = isWhole ? await readLong(database, reader.accountId, belowId, rowsMax) : undefined;
      return known ?? (await readCounted(database, reader, filter, belowId, rowsMax));
    });
    const { items, next } = cutPage(loggedDeliveries(row.deliveries), limit, ({ id }) => id);
    return {
      items,
      next: next ?? row.looked_at_to,
      total: Math.min(row.matches, TOTAL_MAX),
      isTotalCapped: row.looked_at > TOTAL_MAX,
    };
  };
}
