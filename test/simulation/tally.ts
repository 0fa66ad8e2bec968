import { History } from "./history.ts";
import type { Operation } from "./operations.ts";

/** How often something happened, by its name: the operations and their answers, and how deliveries ended. */
export type Tally = Map<string, number>;

/** A failing history, by the seed that plays it again. */
class FailedHistory extends Error {
  override readonly name = "FailedHistory";

  constructor(seed: number, cause: unknown) {
    super(`${String(cause)}. Play it again: npm run simulate -- --seed ${seed}`, { cause });
  }
}

/**
 * Plays `count` histories from a seed on. `looksAt`: of every how many histories the operations are counted too, which
 * costs more than playing them.
 * @throws FailedHistory at the first violation
 */
export function playHistories(firstSeed: number, count: number, looksAt = 20): Tally {
  const tally: Tally = new Map();
  const add = (name: string) => tally.set(name, (tally.get(name) ?? 0) + 1);
  for (let seed = firstSeed; seed < firstSeed + count; seed++) {
    const isLookedAt = seed % looksAt === 0;
    const history = new History(seed, isLookedAt ? (operation) => countOperation(operation, add) : undefined);
    try {
      history.play();
    } catch (error) {
      throw new FailedHistory(seed, error);
    }
    for (const { status, reason } of history.rows.deliveries) add(`ended ${status} ${reason ?? ""}`.trim());
  }
  return tally;
}

function countOperation(operation: Operation, add: (name: string) => void): void {
  switch (operation.kind) {
    case "claim":
      for (const one of operation.claimed) {
        if (one.kind !== "leased") add(`claim ${one.kind}`);
        else if (one.wasInterruptedInQuarantine) add("claim ends what was cut in quarantine");
        else if (one.number === null) add("claim ends what is exhausted");
        else add(operation.request.isInQuarantine ? "claim leased in quarantine" : "claim leased");
      }
      return;
    case "record":
      for (const { delivery, next } of operation.recordings) {
        add(operation.ours.includes(delivery) ? `record ${next.status}` : "record fenced off");
      }
      return;
    case "promote":
      add(operation.woken.length > 0 ? "promote woke" : "promote found nothing");
      return;
    case "replay":
      add(
        `replay ${operation.outcome}${operation.outcome === "replayed" && !operation.wakes ? " under way" : ""}`,
      );
      return;
    case "publish":
    case "endpoint":
      add(operation.kind);
  }
}
