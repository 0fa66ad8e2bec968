// Deliveries in a test database, with the clock as an argument, and their rows.
import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { createDispatchPool } from "../../src/base/database/pools.ts";
import { type Claim, claimDeliveries, type LeasedDelivery } from "../../src/delivery/claim-sql.ts";
import type { AttemptRow, Recording } from "../../src/delivery/record-sql.ts";
import type { TestDatabase } from "./database.ts";

export const LEASE_MS = 20_000;
export const ATTEMPTS_MAX = 8;

/** The pool for claims and records as in production: generic plans, no scans. */
export function openDispatchPool(database: TestDatabase): Pool {
  return createDispatchPool({
    databaseUrl: database.url,
    connectionsMax: 4,
    applicationName: "test dispatch",
    onError: () => undefined,
  });
}

/** Publishes for one account at a given time; `texts` are complete analyses, `ids` become small ones. */
export async function publishAt(
  pool: Pool,
  accountId: string,
  at: Date,
  analyses: readonly string[],
  webhookUrl: string | null = null,
): Promise<string[]> {
  const texts = analyses.map((one) => (one.startsWith("{") ? one : `{"id":"${one}","status":"succeeded"}`));
  const { rows } = await pool.query<{ ids: string[] }>(
    "select sealpost.publish($1, $2, $3, false, $4) as ids",
    [texts.map(() => accountId), texts, texts.map(() => webhookUrl), at],
  );
  return rows[0]!.ids;
}

/** Gives a delivery this many failed attempts, eight to a run, as replays would. */
export async function failAgain(
  pool: Pool,
  accountId: string,
  deliveryId: string,
  count: number,
): Promise<void> {
  // The newest first: what is read in the order of its rows is read backwards.
  await pool.query(
    `insert into sealpost.attempts
       (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, status_code, target_url)
     select $2, $1, (nth - 1) / ${ATTEMPTS_MAX} + 1, (nth - 1) % ${ATTEMPTS_MAX} + 1, now(), now(), 'rejected',
       'status_500', 500, 'https://a.example.com/'
     from generate_series($3::integer, 1, -1) as nth`,
    [accountId, deliveryId, count],
  );
  await pool.query(
    `update sealpost.deliveries set attempts_count = $3, run = ($3 - 1) / ${ATTEMPTS_MAX} + 1, last_status_code = 500,
       last_error_code = 'status_500'
     where account_id = $1 and id = $2`,
    [accountId, deliveryId, count],
  );
}

export type ClaimOptions = {
  readonly at?: Date | null;
  readonly isInQuarantine?: boolean;
  readonly bytesMax?: number;
  readonly leaseMs?: number;
  readonly leaseToken?: string;
  readonly attemptsMax?: number;
};

export function claim(
  pool: Pool,
  deliveryIds: readonly string[],
  options: ClaimOptions = {},
): Promise<Claim> {
  return claimDeliveries(pool, {
    deliveryIds,
    leaseToken: options.leaseToken ?? randomUUID(),
    leaseMs: options.leaseMs ?? LEASE_MS,
    bytesMax: options.bytesMax ?? 8 * 1024 * 1024,
    isInQuarantine: options.isInQuarantine ?? false,
    attemptsMax: options.attemptsMax ?? ATTEMPTS_MAX,
    at: options.at ?? null,
  });
}

/** The only leased one; fails if there is not exactly one. */
export async function claimOne(
  pool: Pool,
  deliveryId: string,
  options: ClaimOptions = {},
): Promise<LeasedDelivery> {
  const { deliveries } = await claim(pool, [deliveryId], options);
  const [delivery] = deliveries;
  if (delivery?.kind !== "leased") throw new Error(`not leased: ${delivery?.kind ?? "it did not come back"}`);
  return delivery;
}

/** What a dispatcher would have recorded for an attempt with this lease. */
export function attemptOf(
  delivery: LeasedDelivery,
  next: Recording["next"],
  attempt: Partial<AttemptRow> | null = {},
): Recording {
  const hasSucceeded = next.status === "succeeded";
  const made: AttemptRow = {
    number: delivery.number ?? 0,
    startedAtMs: delivery.runStartedAtMs,
    endedAtMs: delivery.runStartedAtMs + 40,
    dnsMs: null,
    connectMs: null,
    tlsMs: null,
    firstByteMs: 30,
    statusCode: hasSucceeded ? 200 : 503,
    outcome: hasSucceeded ? "succeeded" : "rejected",
    errorCode: hasSucceeded ? null : "status_503",
    targetUrl: "https://receiver.example.com/",
    remoteAddress: "192.0.2.1",
    responseHeaders: null,
    responseExcerpt: null,
    ...attempt,
  };
  return {
    deliveryId: delivery.deliveryId,
    leaseToken: delivery.leaseToken,
    run: delivery.run,
    attempt: attempt === null ? null : made,
    next,
  };
}

export type DeliveryRow = {
  status: string;
  reason: string | null;
  run: number;
  attempts_count: number;
  last_error_code: string | null;
  last_status_code: number | null;
  endpoint_url: string | null;
};

export async function deliveryRow(pool: Pool, id: string): Promise<DeliveryRow> {
  const { rows } = await pool.query<DeliveryRow>(
    `select status, reason, run, attempts_count, last_error_code, last_status_code, endpoint_url
     from sealpost.deliveries where id = $1`,
    [id],
  );
  return rows[0]!;
}

export type OpenRow = {
  due_at: Date;
  wake_at: Date;
  run_started_at: Date | null;
  lease_until: Date | null;
  lease_token: string | null;
  lease_run: number | null;
  lease_number: number | null;
  lease_alone: boolean;
  run: number;
  attempts_in_run: number;
  interruptions: number;
};

/** Null: the delivery has ended. */
export async function openRow(pool: Pool, id: string): Promise<OpenRow | null> {
  const { rows } = await pool.query<OpenRow>(
    `select due_at, wake_at, run_started_at, lease_until, lease_token, lease_run, lease_number, lease_alone, run,
       attempts_in_run, interruptions
     from sealpost.open_deliveries where delivery_id = $1`,
    [id],
  );
  return rows[0] ?? null;
}

export type LoggedAttempt = {
  run: number;
  number: number;
  outcome: string;
  error_code: string | null;
  status_code: number | null;
};

export async function attemptRows(pool: Pool, id: string): Promise<LoggedAttempt[]> {
  const { rows } = await pool.query<LoggedAttempt>(
    `select run, number, outcome, error_code, status_code from sealpost.attempts
     where delivery_id = $1 order by run, number`,
    [id],
  );
  return rows;
}
