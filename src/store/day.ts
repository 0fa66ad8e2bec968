import pg, { type Pool, type QueryResult, type QueryResultRow } from "pg";
import { BoundedCache } from "../model/bounded-cache.ts";
import { DAY_MS } from "../model/time.ts";

/** Later days have names of another length; no id of ours is of one. */
const LAST_DAY = Math.floor(Date.UTC(9999, 11, 31) / DAY_MS);

/** A delivery's created_at is the time in its UUIDv7, in milliseconds since the epoch; it is stored nowhere else. */
export function createdAtMs(deliveryId: string): number {
  return Number.parseInt(deliveryId.slice(0, 8) + deliveryId.slice(9, 13), 16);
}

/** Partitions are named by the day (UTC) in which their deliveries were made: `deliveries_20261120`. */
export function dayOf(deliveryId: string): string {
  return nameOfDay(Math.min(Math.floor(createdAtMs(deliveryId) / DAY_MS), LAST_DAY));
}

let lastDay = { number: Number.NaN, name: "" };

function nameOfDay(number: number): string {
  // Nearly always the same day; formatting a date costs more than the rest of this function.
  if (lastDay.number !== number) {
    const name = new Date(number * DAY_MS).toISOString().slice(0, 10).replaceAll("-", "");
    lastDay = { number, name };
  }
  return lastDay.name;
}

/** By the day of each delivery; within a day in the order given. */
export function groupByDay<T>(
  items: readonly T[],
  deliveryIdOf: (item: T) => string,
): ReadonlyMap<string, readonly T[]> {
  return Map.groupBy(items, (item) => dayOf(deliveryIdOf(item)));
}

/**
 * Runs a statement that names one day's partitions. If the day has no partition any more, the same statement runs over
 * the parents, more slowly.
 */
export async function queryDay<Row extends QueryResultRow>(
  pool: Pool,
  day: string,
  query: {
    readonly name: string;
    readonly text: (partition: (table: string) => string) => string;
    readonly values: readonly unknown[];
  },
): Promise<QueryResult<Row>> {
  const values = [...query.values];
  try {
    const name = `${query.name}_${day}`;
    const text = texts.get(name, () => query.text((table) => `sealpost.${table}_${day}`));
    return await pool.query<Row>({ name, text, values });
  } catch (error) {
    if (!(error instanceof pg.DatabaseError && error.code === UNDEFINED_TABLE)) throw error;
    return await pool.query<Row>({
      name: query.name,
      text: query.text((table) => `sealpost.${table}`),
      values,
    });
  }
}

const UNDEFINED_TABLE = "42P01";
/** Two statements for each day that has open deliveries. */
const TEXTS_MAX = 200;
const texts = new BoundedCache<string, string>(TEXTS_MAX);
