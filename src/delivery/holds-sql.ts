import type { ClientBase, Pool } from "pg";

/** Rows of everybody's that a pause looks at before it answers; the leader looks at the rest. */
const LOOKED_AT_MAX = 10_000;

/**
 * From now on, nothing more of the account's endpoint is started; what waits, and what comes, is held: see
 * sql/0010_delivery.sql. An endpoint that is paused already stays as it is. False: there is none.
 */
export async function pauseEndpoint(database: ClientBase | Pool, accountId: string): Promise<boolean> {
  const { rows } = await database.query<{ is_there: boolean }>(
    "select sealpost.pause_endpoint($1, $2) as is_there",
    [accountId, LOOKED_AT_MAX],
  );
  return rows[0]!.is_there;
}

/** From now on, what is held is let go, at the leader's pace. False: there is no endpoint. */
export async function resumeEndpoint(database: ClientBase | Pool, accountId: string): Promise<boolean> {
  const { rows } = await database.query<{ is_there: boolean }>(
    "select sealpost.resume_endpoint($1) as is_there",
    [accountId],
  );
  return rows[0]!.is_there;
}

/** Holds what a claim under this token has leased of paused endpoints; nothing of it was posted. `at` null: now. */
export const holdLeased = givingBack("hold_leased");
/** The same of what it has leased for URLs of their own that are closed: it goes to the endpoint. */
export const sendToEndpoint = givingBack("send_to_endpoint");

function givingBack(name: "hold_leased" | "send_to_endpoint") {
  const text = `select sealpost.${name}($1::uuid[], $2::uuid, coalesce($3::timestamptz, now()))`;
  return async (pool: Pool, deliveryIds: readonly string[], leaseToken: string, at: Date | null) => {
    await pool.query({ name, text, values: [`{${deliveryIds.join(",")}}`, leaseToken, at] });
  };
}

/** Held deliveries of one account, and of all accounts, that a step lets go: 100 and 1,000 a second. */
const ACCOUNT_PER_STEP_MAX = 20;
const PER_STEP_MAX = 200;

export type HoldsStep = {
  readonly released: number;
  /** Abandoned, because their analyses are no longer kept. */
  readonly expired: number;
  /** There is more to be looked through for an endpoint that was just paused. */
  readonly isGathering: boolean;
};

/** One paced step of what is held. `at` null: now. */
export async function advanceHolds(
  database: Pool | ClientBase,
  analysisRetentionMs: number,
  at: Date | null,
  accountMax = ACCOUNT_PER_STEP_MAX,
  itemsMax = PER_STEP_MAX,
): Promise<HoldsStep> {
  const { rows } = await database.query<HoldsStep>({
    name: "advance_holds",
    text: `select released, expired, is_gathering as "isGathering" from sealpost.advance_holds(
      $1::float8 * interval '1 millisecond', coalesce($2::timestamptz, now()), $3, $4)`,
    values: [analysisRetentionMs, at, accountMax, itemsMax],
  });
  return rows[0]!;
}
