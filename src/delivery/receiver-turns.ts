import type { Pool } from "pg";
import type { Config } from "../base/config/config.ts";
import { type Admit, ConnectError } from "../egress/egress.ts";
import { allowsUnsafely, portOf, type UnsafeAllowedTargets } from "../egress/rules/host.ts";
import type { TurnTaken } from "./lane.ts";
import { type LookUp, LookUps } from "./look-ups.ts";
import {
  endTurn,
  findReceivers,
  type Meant,
  RECEIVER_EVERY_MS,
  refuseUrl,
  type Turn,
  type TurnRequest,
  takeTurn,
} from "./receivers-sql.ts";

/** Asks of an account that the database has at a time, from this process; the others wait for one of them, … */
const ASKS_PER_ACCOUNT_MAX = 4;
/** … for so long at most, … */
const ASK_WITHIN_MS = 1_000;
/** … or come again after this. */
const NOT_ASKED: Turn = { isProven: false, waitMs: 1_000, isAsked: false };

/** Asks of one account: how many the database has, and who is next, the longest waiting first. */
class Asking {
  count = 0;
  readonly #waiting = new Set<(isNext: boolean) => void>();

  /** False: its turn to ask did not come in time. */
  async begin(): Promise<boolean> {
    if (this.count < ASKS_PER_ACCOUNT_MAX) {
      this.count++;
      return true;
    }
    return await new Promise((resolve) => {
      const end = (isNext: boolean) => {
        clearTimeout(timer);
        this.#waiting.delete(end);
        resolve(isNext);
      };
      const timer = setTimeout(end, ASK_WITHIN_MS, false);
      this.#waiting.add(end);
    });
  }

  end(): void {
    const [next] = this.#waiting;
    if (next === undefined) this.count--;
    else next(true);
  }
}

/** What attempts ask and tell of receivers that have to be proven. @param claims for what all of a claim ask at once */
export function receiverTurns(pool: Pool, claims: Pool) {
  const asking = new Map<string, Asking>();
  const take = async (asked: TurnRequest): Promise<Turn> => {
    const { accountId } = asked;
    const own = asking.get(accountId) ?? new Asking();
    asking.set(accountId, own);
    // Their names may be thousands, and everybody's first webhook would wait behind them.
    if (!(await own.begin())) return NOT_ASKED;
    return await takeTurn(pool, asked).finally(() => {
      own.end();
      if (own.count === 0) asking.delete(accountId);
    });
  };
  return {
    take,
    lookUps: new LookUps(),
    findReceivers: (meant: readonly Meant[]) => findReceivers(claims, meant),
    end: (accountId: string, url: string, isProof: boolean) => endTurn(pool, accountId, url, isProof),
    refuse: (accountId: string, url: string) => refuseUrl(pool, accountId, url),
  };
}

export type ReceiverTurns = ReturnType<typeof receiverTurns>;

/** Whether a receiver there has to prove that it wants webhooks: those of tests on loopback are nobody else's. */
export function mustProve(
  { targetConsent }: Pick<Config, "targetConsent">,
  unsafeAllowedTargets: UnsafeAllowedTargets,
  url: URL,
): boolean {
  return targetConsent !== null || !allowsUnsafely(unsafeAllowedTargets, url.hostname, portOf(url));
}

export type ReceiverTurn = ReturnType<typeof createTurn>;

/** One attempt at a receiver that has proven nothing, at a URL as the account spells it. */
export function createTurn(
  asked: Pick<TurnRequest, "accountId" | "isFirst">,
  url: string,
  turns: ReceiverTurns,
  leaseMs: number,
) {
  const receiver = new URL(url);
  const { origin } = receiver;
  const { accountId } = asked;
  let isTaken = false;
  let waitMs: number | null = null;
  let isProven = false;
  let lookUp: LookUp | null = null;
  let fault: Error | null = null;
  /** Null: its name may be looked up now. */
  const begin = (): TurnTaken | null => {
    lookUp = turns.lookUps.begin(accountId, receiver);
    const { inLine } = lookUp;
    return inLine && { origin, restMs: 0, inLine };
  };
  const admit: Admit = async (address) => {
    fault = new Error("the database did not say in time whose turn it is");
    const more = { origin, address, leaseMs, isFurther: isTaken };
    const turn = await turns.take({ ...asked, ...more }).catch((error: Error) => {
      fault = error;
      lookUp?.end(null);
      throw error;
    });
    fault = null;
    ({ isProven, waitMs } = turn);
    const isUndecided = turn.isAsked === false;
    lookUp?.end(isUndecided ? null : waitMs === null ? "admitted" : "waits");
    if (waitMs !== null)
      throw new ConnectError("not_proven", `${origin} has not proven itself yet.`, { isUndecided });
    isTaken ||= !isProven;
  };
  /** Null: no turn was asked for, as its name leads nowhere. Throws a fault of ours before anything was sent. */
  const end = async (hasSucceeded: boolean, isOurFailure = false): Promise<TurnTaken | null> => {
    if (fault !== null) throw fault;
    if (!isTaken && !isProven && waitMs === null) {
      lookUp?.end(isOurFailure ? null : "failed");
      return null;
    }
    // If that fails, the turn ends by itself, and the next POST proves the same.
    if (isTaken) await turns.end(accountId, url, hasSucceeded).catch(() => undefined);
    // Another address may have had it wait for longer: its turn at the first is over.
    const restMs = isTaken ? RECEIVER_EVERY_MS : waitMs;
    return { origin, restMs: isProven || hasSucceeded ? null : restMs };
  };
  return { begin, admit, end, isProven: () => isProven };
}
