import type { FastifyReply, FastifyRequest } from "fastify";
import type { AccountPlaces } from "../model/account-places.ts";
import { TemporarilyUnavailable } from "./problems.ts";

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
 * Runs the work once it is its account's turn; it holds its place until the work itself has settled.
 * @throws TemporarilyUnavailable when its turn did not come in time; the work is not begun then
 */
export type InTurn = <T>(accountId: string, turn: Turn, work: () => Promise<T>) => Promise<T>;

/** @param name in errors: what waits for these places */
export function createTurns(places: AccountPlaces, name: string): InTurn {
  return async (accountId, { waitMs, gone, size = 1, expectedMs }, work) => {
    const asked = { places: size, placesMin: 1, expectedMs };
    const place = places.tryTake(accountId, asked) ?? (await waitForPlace());
    try {
      return await work();
    } finally {
      place.giveBack();
    }

    async function waitForPlace() {
      const timeUp = AbortSignal.timeout(Math.max(0, Math.ceil(waitMs)));
      const signal = gone === undefined ? timeUp : AbortSignal.any([timeUp, gone]);
      return await places.take(accountId, asked, signal).catch((cause: unknown) => {
        const message = `${name} did not have a place within ${Math.round(waitMs)} ms`;
        throw new TemporarilyUnavailable(message, { cause });
      });
    }
  };
}

/** Has called back when nobody reads the answer any more, at once if it is so already. */
export type OnGone = (end: () => void) => void;

export function onGoneOf(request: FastifyRequest, reply: FastifyReply): OnGone {
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
