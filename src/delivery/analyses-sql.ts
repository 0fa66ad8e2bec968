import type { ClientBase, Pool } from "pg";
import { createdAtMs } from "../base/database/partitions.ts";
import type { EventName } from "../base/model/events.ts";
import type { Reader } from "../base/model/reader.ts";
import { sightOf, sightOfDelivery } from "./visibility-sql.ts";

export type StoredAnalysis = {
  /** The exact text that was published; null: it is no longer kept. */
  readonly text: string | null;
  /** Milliseconds since the epoch. */
  readonly publishedAtMs: number;
};

export type StoredBody = {
  readonly event: EventName;
  /** The analysis's exact text; null: it is no longer kept. */
  readonly text: string | null;
};

/** What a delivery sends, but for what its id tells. Null: the reader sees no delivery of this id. */
export async function findBody(
  database: Pool | ClientBase,
  reader: Reader,
  deliveryId: string,
): Promise<StoredBody | null> {
  const seen = sightOf(reader, "d", 3);
  const { rows } = await database.query<StoredBody>({
    name: `find_body${seen.name}`,
    text: `select d.event, b.analysis::text as text
           from sealpost.deliveries d left join sealpost.bodies b on b.delivery_id = d.id
           where d.account_id = $1 and d.id = $2${seen.and}`,
    values: [reader.accountId, deliveryId, ...seen.values],
  });
  return rows[0] ?? null;
}

/** Null: the reader sees no analysis of this id, or the log no longer knows it. */
export async function findAnalysis(
  database: Pool | ClientBase,
  reader: Reader,
  analysisId: string,
): Promise<StoredAnalysis | null> {
  const seen = sightOfDelivery(reader, "a.account_id", "a.delivery_id", 3);
  const { rows } = await database.query<{ delivery_id: string; text: string | null }>({
    name: `find_analysis${seen.name}`,
    text: `select a.delivery_id, b.analysis::text as text
           from sealpost.analyses a left join sealpost.bodies b on b.delivery_id = a.delivery_id
           where a.account_id = $1 and a.id = $2${seen.and}`,
    values: [reader.accountId, analysisId, ...seen.values],
  });
  const [row] = rows;
  return row === undefined ? null : { text: row.text, publishedAtMs: createdAtMs(row.delivery_id) };
}
