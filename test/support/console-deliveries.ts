// Deliveries in every state, as the log shows them, without a dispatcher.
import type { ErrorCode } from "../../src/base/model/error-codes.ts";
import { type Recording, recordOutcomes } from "../../src/delivery/record-sql.ts";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import type { TestDatabase } from "./database.ts";
import { claim, openDispatchPool, publishAt } from "./delivery-rows.ts";
import { changeRows } from "./installation.ts";
import type { TestAccount, TestApi } from "./sealpost-api.ts";

const TARGET = "https://hooks.example.com/in";
/** What a hostile receiver answers. */
export const EXCERPT = '<img src=x onerror="document.title=1"><script>document.title=1</script>';

export type Shown = {
  readonly succeeded: number;
  readonly failed: number;
  readonly abandoned: number;
  readonly pending: number;
};

/** How they fail, and where they go. */
export type Failure = {
  readonly url: string;
  readonly errorCode: ErrorCode;
  readonly statusCode: number | null;
};

const UNAVAILABLE: Failure = { url: TARGET, errorCode: "status_503", statusCode: 503 };

/** Analyses `inv-1`, `inv-2`, …, the newest first: abandoned ones, then failed, succeeded and pending ones. */
export async function layDeliveries(
  database: TestDatabase,
  accountId: string,
  shown: Shown,
  nowMs: number = Date.now(),
  failure: Failure = UNAVAILABLE,
): Promise<void> {
  const kinds = (["abandoned", "failed", "succeeded", "pending"] as const).flatMap((kind) =>
    Array.from({ length: shown[kind] }, () => kind),
  );
  await database.pool.query(
    `insert into sealpost.endpoints (account_id, url) values ($1, $2) on conflict (account_id) do nothing`,
    [accountId, failure.url],
  );
  const idsByKind = new Map<string, (typeof kinds)[number]>();
  for (const [index, kind] of kinds.entries()) {
    const at = new Date(nowMs - (index + 1) * 60_000);
    const [id] = await publishAt(database.pool, accountId, at, [`inv-${index + 1}`]);
    idsByKind.set(id!, kind);
  }
  const ended = new Map([...idsByKind].filter(([, kind]) => kind !== "pending"));
  await endAttempts(database, ended as Map<string, End>, nowMs, failure);
}

type End = "abandoned" | "failed" | "succeeded";

/** An attempt of each of these, as they are due. */
export async function endAttempts(
  database: TestDatabase,
  ends: ReadonlyMap<string, End>,
  nowMs: number = Date.now(),
  failure: Failure = UNAVAILABLE,
): Promise<void> {
  const pool = openDispatchPool(database);
  const { deliveries } = await claim(pool, [...ends.keys()]);
  const recordings = deliveries.flatMap((delivery): Recording[] => {
    if (delivery.kind !== "leased") return [];
    const kind = ends.get(delivery.deliveryId)!;
    const hasSucceeded = kind === "succeeded";
    const errorCode: ErrorCode | null = hasSucceeded ? null : failure.errorCode;
    return [
      {
        deliveryId: delivery.deliveryId,
        leaseToken: delivery.leaseToken,
        run: delivery.run,
        attempt: {
          number: delivery.number ?? 1,
          startedAtMs: nowMs - 5_000,
          endedAtMs: nowMs - 3_800,
          dnsMs: 12,
          connectMs: 34,
          tlsMs: 80,
          firstByteMs: 900,
          statusCode: hasSucceeded ? 200 : failure.statusCode,
          outcome: hasSucceeded ? "succeeded" : failure.statusCode === null ? "unreachable" : "rejected",
          errorCode,
          targetUrl: failure.url,
          remoteAddress: "93.184.216.34",
          responseHeaders: JSON.stringify({ server: "nginx", "content-type": "text/html" }),
          responseExcerpt: EXCERPT,
        },
        next:
          kind === "abandoned"
            ? { status: "abandoned", reason: "attempts_exhausted", errorCode }
            : kind === "failed"
              ? { status: "failed", dueAtMs: nowMs + 3_600_000 }
              : { status: "succeeded" },
      },
    ];
  });
  await recordOutcomes(pool, recordings);
  await pool.end();
}

const WEEK_MS = 7 * 86_400_000;

/**
 * A bulk replay of all that failed, one a second, that has started two, or at this pace all. `endStarted` ends an
 * attempt of each of those, with a failure of its own where it is given one, and has the replay counted.
 */
export async function layReplay(
  database: TestDatabase,
  api: TestApi,
  { accountId, ownKey: key }: TestAccount,
  ratePerSecond = 1,
) {
  const { pool } = database;
  const body = { filter: {}, rate_per_second: ratePerSecond };
  const id = String((await api.ask("POST", "/v1/webhooks/replays", { key, body })).body.id);
  const longAgo = new Date(Date.now() - 10_000);
  await changeRows(pool, "replays", { id }, { paced_at: longAgo });
  await advanceReplays(pool, WEEK_MS, null);
  const { rows } = await pool.query<{ id: string }>(
    "select delivery_id as id from sealpost.replay_items where replay_id = $1 and run is not null order by position",
    [id],
  );
  const started = rows.map((row) => row.id);
  return {
    id,
    started,
    endStarted: async (...ends: readonly (readonly [End, Failure?])[]) => {
      for (const [at, [end, failure]] of ends.entries()) {
        await changeRows(
          pool,
          "open_deliveries",
          { account_id: accountId, delivery_id: started[at] },
          { due_at: longAgo },
        );
        await endAttempts(database, new Map([[started[at]!, end]]), Date.now(), failure);
      }
      // It starts no more meanwhile.
      await changeRows(
        pool,
        "replays",
        { id },
        { paced_at: new Date(Date.now() + 60_000), count_at: longAgo },
      );
      await advanceReplays(pool, WEEK_MS, null);
    },
  };
}
