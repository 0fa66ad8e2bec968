import type { Pool } from "pg";
import { TtlMap } from "../model/caches.ts";
import { gatherByTurn } from "./coalesce.ts";

/** So many requests within so many seconds. */
export type CountedPolicy = { readonly requestsMax: number; readonly windowSeconds: number };

/** Requests of the bucket's window so far, the counted one included, and when that window ends. */
export type Counted = { readonly requests: number; readonly resetMs: number };

/** A bucket's window, as far as this process knows it. */
type Window = {
  /** Requests of all processes that the database had counted, this process's included. */
  counted: number;
  /** Of this process, which the database does not know yet. */
  pending: number;
  readonly endsAtMs: number;
  toldAtMs: number;
};

/**
 * Counts requests in buckets that all processes beside one database share. While less than half of a limit is used, a
 * process counts by itself and tells the database each second (or each quarter of the window, if that is sooner), so
 * that ordinary use costs no statement. Beyond half, and for limits below SMALL, each request is counted in the
 * database first. So what passes beyond a limit is at most what the other processes have counted and not told yet,
 * each of them at most half of the limit.
 *
 * A bucket over its limit is not written again until its window ends, so that a flood of refused requests causes no
 * flood of writes. Requests of one turn of the event loop, of all policies together, are counted by one statement,
 * each with a number of its own in its bucket; those beyond the limit may only be told that they are.
 *
 * Losing option: rate-limiter-flexible, which counts by this machine's clock, a statement for each bucket, and locks
 * them in any order: nothing of it was left once that had been replaced.
 */
export function createRequestCounter(
  pool: Pool,
  /** The smallest limit that is counted here at first; Infinity: none is, whatever it costs. */
  small = SMALL,
): (bucket: string, policy: CountedPolicy) => Promise<Counted> {
  const now = () => performance.now();
  const windows = new TtlMap<string, Window>(BUCKETS_MAX, now);
  const consume = gatherByTurn(countAllAndPending);
  /** Of as many pages as are refreshed in one turn. */
  const told = gatherByTurn((buckets) =>
    countAllAndPending(new Map(Array.from(buckets.keys(), (asked) => [asked, 0]))),
  );

  /** What this process has counted by itself is told with the next statement about its bucket. */
  async function countAllAndPending(
    requests: ReadonlyMap<string, number>,
  ): Promise<ReadonlyMap<string, Row>> {
    const taken = new Map([...requests.keys()].map((asked) => [asked, takePending(asked)]));
    const all = new Map([...requests].map(([asked, callers]) => [asked, callers + taken.get(asked)!]));
    try {
      return await countAll(pool, all);
    } catch (error) {
      for (const [asked, pending] of taken) givePendingBack(asked, pending);
      throw error;
    }
  }

  function takePending(asked: string): number {
    const window = windows.get(asked);
    if (window === undefined) return 0;
    const { pending } = window;
    window.counted += pending;
    window.pending = 0;
    window.toldAtMs = now();
    return pending;
  }

  function givePendingBack(asked: string, taken: number): void {
    const window = windows.get(asked);
    if (window === undefined) return;
    window.counted -= taken;
    window.pending += taken;
  }

  function learn(asked: string, { points: counted, leftMs }: Row): void {
    const pending = windows.get(asked)?.pending ?? 0;
    const nowMs = now();
    windows.set(asked, { counted, pending, endsAtMs: nowMs + leftMs, toldAtMs: nowMs }, leftMs);
  }

  /** Null: the database has to be asked. */
  function countHere(asked: string, { requestsMax, windowSeconds }: CountedPolicy): Counted | null {
    const window = windows.get(asked);
    if (window === undefined) return null;
    const nowMs = now();
    const resetMs = window.endsAtMs - nowMs;
    if (window.counted > requestsMax) return { requests: requestsMax + 1, resetMs };
    if (requestsMax < small || window.counted + window.pending + 1 > requestsMax / 2) return null;
    window.pending++;
    if (nowMs - window.toldAtMs > Math.min(TELL_EVERY_MS, windowSeconds * 250)) tell(asked);
    return { requests: window.counted + window.pending, resetMs };
  }

  /** If it fails, it is told later. */
  function tell(asked: string): void {
    told(asked).then(
      ({ answer }) => learn(asked, answer!),
      () => undefined,
    );
  }

  return async (bucket, policy) => {
    const asked = `${policy.windowSeconds}:${bucket.slice(0, KEY_CHARS_MAX)}`;
    const here = countHere(asked, policy);
    if (here !== null) return here;
    const { answer, callers, place } = await consume(asked);
    if (answer === undefined) throw new Error("A bucket was not counted.");
    if (place === callers) learn(asked, answer);
    return { requests: answer.points - callers + place, resetMs: answer.leftMs };
  };
}

/** Takes back one request from each of these buckets: it was not one of those that are limited. */
export async function uncountRequest(pool: Pool, buckets: readonly string[]): Promise<void> {
  await pool.query(
    `update sealpost.rate_limits set points = points - 1
     where key in (select key from sealpost.rate_limits where key = any ($1::text[]) and points > 0
       order by key for update)`,
    [buckets.map((bucket) => bucket.slice(0, KEY_CHARS_MAX))],
  );
}

/** Of the table; a longer one would be refused, and the others of its turn with it. */
const KEY_CHARS_MAX = 255;

/** One that is forgotten is counted in the database, and refused, once more. */
const BUCKETS_MAX = 20_000;
const SMALL = 20;
const TELL_EVERY_MS = 1_000;

/** In one order everywhere, or two statements might wait for each other. By the database's clock. */
const COUNT = `
insert into sealpost.rate_limits as known (key, points, expire)
select asked.key, asked.points, (extract(epoch from now()) * 1000)::bigint + asked.window_ms
from unnest($1::text[], $2::integer[], $3::bigint[]) as asked (key, points, window_ms)
order by asked.key
on conflict (key) do update set
  points = case when known.expire <= (extract(epoch from now()) * 1000)::bigint
    then excluded.points else known.points + excluded.points end,
  expire = case when known.expire <= (extract(epoch from now()) * 1000)::bigint
    then excluded.expire else known.expire end
returning key, points, greatest(expire - (extract(epoch from now()) * 1000)::bigint, 0)::float8 as "leftMs"`;

type Row = { readonly key: string; readonly points: number; readonly leftMs: number };

/** @param requests of each bucket, its window before it: `60:name` */
async function countAll(
  pool: Pool,
  requests: ReadonlyMap<string, number>,
): Promise<ReadonlyMap<string, Row>> {
  const asked = [...requests].map(([name, points]) => {
    const end = name.indexOf(":");
    return { name, key: name.slice(end + 1), points, windowMs: Number(name.slice(0, end)) * 1_000 };
  });
  const values = (["key", "points", "windowMs"] as const).map((column) => asked.map((one) => one[column]));
  const { rows } = await pool.query<Row>({ name: "count_requests", text: COUNT, values });
  const byKey = new Map(rows.map((row) => [row.key, row]));
  return new Map(asked.map(({ name, key }) => [name, byKey.get(key)!]));
}
