import { setImmediate, setTimeout } from "node:timers/promises";
import type { FastifyReply, FastifyRequest } from "fastify";
import { AccountPlaces, accountOf, isUser, type Place } from "../base/model/account-places.ts";
import { RETRY_AFTER_UNAVAILABLE_SECONDS, SCARCE_BYTES_PER_SECOND } from "./limits.ts";
import { Problem, TemporarilyUnavailable } from "./problems.ts";

export type Turn = {
  readonly waitMs: number;
  /** Aborted when nobody waits for the answer any more; absent: whoever asks stays. */
  readonly gone?: AbortSignal | undefined;
  /** Large work takes several places, or as many as are free: waiting for all, it would come behind all small work. */
  readonly size?: number;
  /** See AskedPlaces. */
  readonly expectedMs?: number;
};

/**
 * Runs the work once it is its sharer's turn (see `sharerOf`); it holds its place until the work itself has settled.
 * @throws TemporarilyUnavailable when its turn did not come in time; the work is not begun then
 */
export type InTurn = <T>(sharer: string, turn: Turn, work: () => Promise<T>) => Promise<T>;

/** @param name in errors: what waits for these places */
export function createTurns(places: AccountPlaces, name: string): InTurn {
  return async (sharer, { waitMs, gone, size = 1, expectedMs }, work) => {
    const asked = { places: size, placesMin: 1, expectedMs };
    const place = places.tryTake(sharer, asked) ?? (await waitForPlace());
    try {
      return await work();
    } finally {
      place.giveBack();
    }

    async function waitForPlace() {
      const timeUp = AbortSignal.timeout(Math.max(0, Math.ceil(waitMs)));
      const signal = gone === undefined ? timeUp : AbortSignal.any([timeUp, gone]);
      return await places.take(sharer, asked, signal).catch((cause: unknown) => {
        const message = `${name} did not have a place within ${Math.round(waitMs)} ms`;
        throw new TemporarilyUnavailable(message, { cause });
      });
    }
  };
}

/** Runs what keeps the thread busy once it is its account's turn. @throws TemporarilyUnavailable as InTurn does */
export type OnThread = <T>(sharer: string, turn: Turn, work: () => T) => Promise<T>;

/**
 * Turns at the one thread that serves everybody: one piece of work at a time, of the account whose pieces have taken
 * the least lately. After each there is none for as long as it took, so that small requests go on, whose steps are
 * many. Losing option: a rest for its account alone. Twenty of them had all of the thread.
 */
export function createThreadTurns(): OnThread {
  const places = new AccountPlaces({ placesMax: 1, keptPlaces: 0, lightMs: 0 });
  const inTurn = createTurns(places, "a large body or answer");
  let owedMs = 0;
  return (sharer, turn, work) =>
    new Promise((resolve, reject) => {
      const workAndRest = async () => {
        const startMs = performance.now();
        resolve(new Promise((end) => end(work())));
        owedMs += performance.now() - startMs;
        // A timer takes a millisecond at least.
        if (owedMs < 1) return await setImmediate();
        await setTimeout(owedMs);
        owedMs = 0;
      };
      inTurn(sharer, turn, workAndRest).catch(reject);
    });
}

/** Has called back when nobody reads the answer any more, at once if it is so already. */
export type OnGone = (end: () => void) => void;

export function onDisconnectOf(request: FastifyRequest, reply: FastifyReply): OnGone {
  return (end) => {
    // It may have gone while its key was looked up.
    if (request.raw.socket.destroyed) end();
    else reply.raw.once("close", end);
  };
}

/** Calls `act` with a signal that is aborted once nobody waits for its end any more, or it has settled. */
export async function untilGone<T>(
  onGone: OnGone | undefined,
  act: (gone: AbortSignal) => Promise<T>,
): Promise<T> {
  const leaving = new AbortController();
  onGone?.(() => leaving.abort());
  try {
    return await act(leaving.signal);
  } finally {
    leaving.abort();
  }
}

/** Their name in the headers of a 429, and what they are counted in. */
const TRANSFERS = {
  uploads: "concurrent-requests",
  downloads: "concurrent-requests",
  "body-bytes": "content-bytes",
  "answer-bytes": "content-bytes",
} as const;

export type TransferPlaces = ReturnType<typeof createTransferPlaces>;

/**
 * Places for transfers of one kind at a time in one process: they last as long as their client likes, so they wait for
 * none. While all are taken, one that hardly moves makes room for an account that has none, or for a user of
 * its own account who has none.
 */
export function createTransferPlaces(name: keyof typeof TRANSFERS, max: number) {
  const places = new AccountPlaces({ placesMax: max, movingBytesPerSecond: SCARCE_BYTES_PER_SECOND });

  /**
   * @param onCut ends it: its place is another account's
   * @throws Problem 429 for an account that has its share, or a user of it
   * @throws TemporarilyUnavailable when all are taken
   */
  function take(sharer: string, onCut: (reason: TemporarilyUnavailable) => void, size = 1): Place {
    const reason = () =>
      new TemporarilyUnavailable(`one of the ${name} moved too slowly while all places were taken`);
    const place = places.tryTake(sharer, { places: size, onCut: () => onCut(reason()) });
    if (place !== null) return place;
    if (places.held(accountOf(sharer)) === 0)
      throw new TemporarilyUnavailable(`all ${max} places for ${name} are taken`);
    const seconds = RETRY_AFTER_UNAVAILABLE_SECONDS;
    const headers = {
      ratelimit: `"${name}";r=0;t=${seconds}`,
      "ratelimit-policy": `"${name}";q=${Math.ceil(max / (isUser(sharer) ? 4 : 2))};qu="${TRANSFERS[name]}"`,
      "retry-after": String(seconds),
    };
    throw new Problem("rate_limited", { headers });
  }

  return { take };
}
