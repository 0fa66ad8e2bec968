// Compares what the pipeline was promised, what the receiver saw and what the database says in the end.
import type { Pool } from "pg";
import type { Arrival } from "./arrival.ts";
import type { Publication } from "./producer.ts";

export type Verdict = {
  readonly published: number;
  readonly acknowledged: number;
  /** Acknowledged, and neither succeeded nor abandoned for a reason that is shown. Always 0. */
  readonly lost: number;
  /** Deliveries that nobody asked for, and arrivals of unknown ones. Always 0. */
  readonly unexpected: number;
  /** Deliveries beyond the first of one analysis. Always 0. */
  readonly doubled: number;
  /** Not signed, or with other bytes than were published. Always 0. */
  readonly forged: number;
  /** Succeeded, though the receiver never said so. Always 0. */
  readonly imagined: number;
  /** Arrivals of a delivery that the receiver had already accepted. */
  readonly duplicated: number;
  /**
   * Deliveries that the receiver accepted more often than there were attempts whose answer was lost (interrupted or
   * unanswered), the last one apart: sent again although the success was known. Always 0.
   */
  readonly repeated: number;
  /** Published in doubt (the answer to the commit was lost), and all the same exactly one delivery. */
  readonly recovered: number;
  readonly succeeded: number;
  readonly abandoned: Readonly<Record<string, number>>;
  readonly attempts: number;
  readonly interrupted: number;
  /** Attempts that ended in silence, of which the receiver may have accepted some: they too may be sent again. */
  readonly unanswered: number;
  /** POSTs of one delivery under way at the same time. */
  readonly atOnceMax: number;
  /** From the start of an interrupted attempt to the next attempt, where that need not go alone; null: none was. */
  readonly sentAgainMsMax: number | null;
  /** What was wrong, in words, for the first few. */
  readonly complaints: readonly string[];
};

type Row = {
  id: string;
  analysis_id: string;
  account_id: string;
  status: string;
  reason: string | null;
  attempts_count: number;
  logged: number;
  interrupted: number;
  unanswered: number;
};

const COMPLAINTS_MAX = 10;

/** To be asked when nothing is open any more. */
export async function check(
  pool: Pool,
  publications: readonly Publication[],
  arrivals: readonly Arrival[],
): Promise<Verdict> {
  const { rows } = await pool.query<Row>(DELIVERIES);
  const { rows: again } = await pool.query<{ ms: number | null }>(SENT_AGAIN);
  const complaints: string[] = [];
  const count = <T>(items: Iterable<T>, isWrong: (item: T) => boolean, name: (item: T) => string): number => {
    let wrong = 0;
    for (const item of items) {
      if (!isWrong(item)) continue;
      wrong++;
      if (complaints.length < COMPLAINTS_MAX) complaints.push(name(item));
    }
    return wrong;
  };

  const byAnalysis = new Map(rows.map((row) => [`${row.account_id} ${row.analysis_id}`, row]));
  const byId = new Map(rows.map((row) => [row.id, row]));
  const published = new Map(publications.map((one) => [`${one.accountId} ${one.analysisId}`, one]));
  const rowOf = (one: Publication) => byAnalysis.get(`${one.accountId} ${one.analysisId}`);
  const publicationOf = (row: Row | undefined) =>
    row && published.get(`${row.account_id} ${row.analysis_id}`);
  const acknowledged = publications.filter((one) => one.acknowledgedAtMs !== null);
  const acceptances = new Map<string, number>();
  let duplicated = 0;
  for (const { deliveryId, answer } of arrivals) {
    const before = acceptances.get(deliveryId) ?? 0;
    if (before > 0) duplicated++;
    if (isAccepted(answer)) acceptances.set(deliveryId, before + 1);
  }

  return {
    published: publications.length,
    acknowledged: acknowledged.length,
    lost: count(
      acknowledged,
      (one) => rowOf(one)?.id !== one.deliveryId || !hasEnded(rowOf(one)),
      (one) => `lost ${one.analysisId} (${one.deliveryId}): ${JSON.stringify(rowOf(one) ?? null)}`,
    ),
    unexpected:
      count(
        rows,
        (row) => publicationOf(row) === undefined,
        (row) => `unexpected delivery ${row.id}`,
      ) +
      count(
        arrivals,
        ({ deliveryId }) => !byId.has(deliveryId),
        ({ deliveryId }) => `unexpected arrival ${deliveryId}`,
      ) +
      count(
        rows,
        (row) => row.logged !== row.attempts_count,
        (row) => `${row.logged} attempts logged of ${row.attempts_count}: ${row.id}`,
      ),
    doubled: count(
      rows,
      (row) => byAnalysis.get(`${row.account_id} ${row.analysis_id}`) !== row,
      (row) => `another delivery of ${row.analysis_id}: ${row.id}`,
    ),
    forged: count(
      arrivals,
      ({ deliveryId, isSigned, dataDigest }) =>
        !isSigned || publicationOf(byId.get(deliveryId))?.digest !== dataDigest,
      ({ deliveryId, isSigned }) => `${isSigned ? "other bytes" : "no good signature"}: ${deliveryId}`,
    ),
    imagined: count(
      rows,
      (row) => row.status === "succeeded" && !acceptances.has(row.id),
      (row) => `succeeded without the receiver: ${row.id}`,
    ),
    duplicated,
    repeated: count(
      rows,
      (row) => (acceptances.get(row.id) ?? 0) - known(row) > row.interrupted + row.unanswered,
      (row) => `accepted ${acceptances.get(row.id)} times: ${JSON.stringify(row)}`,
    ),
    recovered: acknowledged.filter((one) => one.wasInDoubt).length,
    succeeded: rows.filter((row) => row.status === "succeeded").length,
    abandoned: countBy(rows.filter((row) => row.status === "abandoned").map((row) => String(row.reason))),
    attempts: sumOf(rows.map((row) => row.attempts_count)),
    interrupted: sumOf(rows.map((row) => row.interrupted)),
    unanswered: sumOf(rows.map((row) => row.unanswered)),
    atOnceMax: arrivals.reduce((max, { atOnce }) => Math.max(max, atOnce), 0),
    sentAgainMsMax: again[0]!.ms === null ? null : Math.round(Number(again[0]!.ms)),
    complaints,
  };
}

/** Acceptances that we know of: after one, nothing is sent again. */
const known = (row: Row) => (row.status === "succeeded" ? 1 : 0);
const isAccepted = (answer: Arrival["answer"]) =>
  answer !== null && answer.status >= 200 && answer.status < 300;
const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + number, 0);
const hasEnded = (row: Row | undefined) => row?.status === "succeeded" || row?.status === "abandoned";

function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

const DELIVERIES = `
select d.id, d.analysis_id, d.account_id, d.status, d.reason, d.attempts_count,
  count(a.number)::integer as logged,
  count(a.number) filter (where a.outcome = 'interrupted')::integer as interrupted,
  count(a.number) filter (where a.outcome in ('timed_out', 'unreachable'))::integer as unanswered
from sealpost.deliveries d
left join sealpost.attempts a on a.delivery_id = d.id
group by d.id, d.analysis_id, d.account_id, d.status, d.reason, d.attempts_count`;

/** After a second interruption in a row a delivery waits for its turn to go alone. */
const SENT_AGAIN = `
select max(extract(epoch from next.started_at - cut.started_at) * 1000)::float8 as ms
from sealpost.attempts cut
join sealpost.attempts next
  on next.delivery_id = cut.delivery_id and next.run = cut.run and next.number = cut.number + 1
left join sealpost.attempts before
  on before.delivery_id = cut.delivery_id and before.run = cut.run and before.number = cut.number - 1
where cut.outcome = 'interrupted' and before.outcome is distinct from 'interrupted'`;
