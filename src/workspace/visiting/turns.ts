import { TemporarilyUnavailable } from "../../api/problems.ts";
import { inTurns } from "../../api/turn-queue.ts";

/**
 * Does the work in its owner's turn.
 * @throws TemporarilyUnavailable when too many wait for theirs; the work is not begun then
 */
export type TakeTurn = <T>(owner: string, work: () => Promise<T>) => Promise<T>;

export type TurnLimits = {
  /** In errors: what all wait for. */
  readonly name: string;
  readonly atOnceMax: number;
  /** Those at work included. One owner has at most half of these places. */
  readonly waitingMax: number;
};

/** For work that keeps a processor busy: owners take turns, so that nobody's keeps another's waiting for long. */
export function createTurns({ name, atOnceMax, waitingMax }: TurnLimits): TakeTurn {
  const enqueue = inTurns(atOnceMax, (work: () => Promise<void>) => work());
  const byOwner = new Map<string, number>();
  let waiting = 0;

  return async (owner, work) => {
    const own = byOwner.get(owner) ?? 0;
    if (waiting >= waitingMax || own >= waitingMax / 2) {
      throw new TemporarilyUnavailable(`too many are waiting for ${name}`);
    }
    waiting++;
    byOwner.set(owner, own + 1);
    try {
      return await new Promise((resolve, reject) => {
        enqueue(owner, () => work().then(resolve, reject));
      });
    } finally {
      waiting--;
      const left = byOwner.get(owner)! - 1;
      if (left > 0) byOwner.set(owner, left);
      else byOwner.delete(owner);
    }
  };
}
