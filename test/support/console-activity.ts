// A day of attempts as the console's chart shows it, counted as the leader counts it.
import { countActivity } from "../../src/log/activity-sql.ts";
import { type EndedAttempt, endedAttempt, insertAttempts } from "./attempt-rows.ts";
import type { TestDatabase } from "./database.ts";
import { changeRows } from "./installation.ts";

const MINUTE_MS = 60_000;
const LAG_MS = 15_000;

const REFUSED: Partial<EndedAttempt> = { outcome: "unreachable", errorCode: "connect_refused" };

/** An attempt each five minutes until `failingForMs` ago, and refused connections since; 0: none. */
export async function layActivity(
  database: TestDatabase,
  accountId: string,
  failingForMs: number,
  targetUrl = "https://hooks.example.com/in",
  failure = REFUSED,
): Promise<void> {
  const attempts: readonly EndedAttempt[] = Array.from({ length: 280 }, (_, n) => {
    const agoMs = n * 5 * MINUTE_MS + MINUTE_MS;
    return endedAttempt(new Date(Date.now() - agoMs), {
      accountId,
      targetUrl,
      ...(agoMs < failingForMs && failure),
    });
  });
  await insertAttempts(database.pool, attempts);
  await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(Date.now() - MINUTE_MS) });
  while ((await countActivity(database.pool, LAG_MS)).isBehind);
}
