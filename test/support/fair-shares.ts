// Whether somebody is served beside greedy ones as it is alone.
import { isDeepStrictEqual } from "node:util";
import { expect } from "vitest";

/** Of greedy accounts: those that no half leaves anything of, and more than any place has shares. */
export const GREEDY_COUNTS = [2, 20] as const;
const TRIES = 20;
const ROUNDS = 3;

/** One try; resolves to what came of it. */
export type Try = (n: number) => Promise<unknown>;

/**
 * Tries both in turn, so that a busy machine slows both; where it is too busy for the one alone, neither counts. Every
 * try beside the greedy has to come to `outcome`, and all but the slowest within three times the slowest alone: in one
 * round of three, since a machine that stands still for a moment may hit the one and not the other, and whoever waits
 * for the greedy waits in each.
 */
export async function expectItsTurn(outcome: unknown, beside: Try, alone: Try): Promise<void> {
  const rounds: { readonly limitMs: number; readonly besideMs: number }[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const took = await tryInTurns(round, outcome, beside, alone);
    rounds.push({ limitMs: 3 * took.alone.at(-1)!, besideMs: took.beside.at(-2)! });
    if (rounds.at(-1)!.besideMs < rounds.at(-1)!.limitMs) return;
  }
  expect.fail(`Each round took longer beside the greedy: ${JSON.stringify(rounds)}`);
}

/** Returns what each try took, in milliseconds, the shortest first. */
async function tryInTurns(round: number, outcome: unknown, beside: Try, alone: Try) {
  const took = { beside: [] as number[], alone: [] as number[] };
  const outcomes: unknown[] = [];
  for (let n = 0; outcomes.length < TRIES; n++) {
    expect(n, "tries, of which as many failed alone as may").toBeLessThan(2 * TRIES);
    const quiet = await timed(() => alone(2 * TRIES * round + n));
    const loaded = await timed(() => beside(2 * TRIES * round + n));
    if (!isDeepStrictEqual(quiet.outcome, outcome)) continue;
    took.alone.push(quiet.ms);
    took.beside.push(loaded.ms);
    outcomes.push(loaded.outcome);
  }
  expect(outcomes).toEqual(Array(TRIES).fill(outcome));
  for (const times of Object.values(took)) times.sort((a, b) => a - b);
  return took;
}

/** What came of it, an error included, and how long it took. */
async function timed(
  act: () => Promise<unknown>,
): Promise<{ readonly outcome: unknown; readonly ms: number }> {
  const startMs = performance.now();
  const outcome = await act().catch((error: unknown) => error);
  return { outcome, ms: performance.now() - startMs };
}

/** Does it again and again, so many at a time, until the test ends it. Whatever comes of it is the greedy one's. */
export function flood(atOnce: number, act: (n: number) => Promise<unknown>) {
  let isOver = false;
  let begun = 0;
  const going = Array.from({ length: atOnce }, async () => {
    while (!isOver) await act(begun++).catch(() => undefined);
  });
  return {
    [Symbol.asyncDispose]: async () => {
      isOver = true;
      await Promise.all(going);
    },
  };
}
