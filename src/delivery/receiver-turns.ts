import { setTimeout as wait } from "node:timers/promises";
import type { Pool } from "pg";
import type { Config } from "../base/config/config.ts";
import { TtlMap } from "../base/model/caches.ts";
import { type Admit, ConnectError } from "../egress/egress.ts";
import { allowsUnsafely, portOf, type UnsafeAllowedTargets } from "../egress/rules/host.ts";
import type { TurnTaken } from "./lane.ts";
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

/** After a look-up that failed, or of a name whose receiver has to wait for its turn, those of its domain wait, … */
const OF_DOMAIN_MS = 100;
/** … and after one that failed, those of all its account's names; … */
const OF_ACCOUNT_MS = 10;
/** … the pauses of many add up to this at most. */
const PAUSE_MAX_MS = 3_000;
/** One that is shorter is waited out. In a longer one an attempt keeps no place from its account's other names. */
const WAITED_OUT_MS = 300;
/** Weight of one look-up in the moving average of those that have cost a pause. */
const LOOK_UP_WEIGHT = 0.02;
/** What is put off comes again a little slower than it is looked up: it should find no pause again. */
const COME_AGAIN_RATIO = 1.1;
const PACES_MAX = 10_000;
const REMEMBERED_MS = 60_000;
/** A name whose turn it was goes on without a pause for so long: its turns are few. */
const LED_ON_MS = 600_000;

/** The pace of an account's look-ups, in one domain or in all. */
class Pace {
  readonly pauseMs: number;
  /** By the monotonic clock: when the next one may begin, … */
  #nextAtMs = 0;
  /** … and when the last one comes again that was put off. */
  #comesAgainAtMs = 0;
  #costlyShare = 0;

  constructor(pauseMs: number) {
    this.pauseMs = pauseMs;
  }

  get leftMs(): number {
    return Math.max(0, this.#nextAtMs - performance.now());
  }

  /** One begins: the next one follows when what it costs on average is over. Returns how long that is. */
  begin(): number {
    const costMs = this.pauseMs * this.#costlyShare;
    this.#pause(costMs);
    return costMs;
  }

  /** In place of `begunMs`, it costs a pause or nothing. */
  end(isCostly: boolean, begunMs: number): void {
    this.#pause((isCostly ? this.pauseMs : 0) - begunMs);
    this.#costlyShare += (Number(isCostly) - this.#costlyShare) * LOOK_UP_WEIGHT;
  }

  /** In so many ms it comes again, after all that were put off before. */
  putOff(): number {
    const nowMs = performance.now();
    const afterMs = this.pauseMs * this.#costlyShare * COME_AGAIN_RATIO;
    this.#comesAgainAtMs = Math.max(this.#comesAgainAtMs, this.#nextAtMs, nowMs) + afterMs;
    return this.#comesAgainAtMs - nowMs;
  }

  #pause(ms: number): void {
    const nowMs = performance.now();
    this.#nextAtMs = Math.min(Math.max(this.#nextAtMs, nowMs) + ms, nowMs + PAUSE_MAX_MS);
  }
}

/** Where a name has led: nowhere, to a receiver that has to wait for its turn, or to one whose turn it is. */
type Led = "nowhere" | "to_wait" | "on";

/** `restMs` above 0: it has not begun, and comes again in so many ms. `end` with null: nobody said whose turn it is. */
type LookUp = { readonly restMs: number; readonly end: (led: Led | null) => void };

/**
 * Look-ups of receivers that have proven nothing. Whose name servers are asked for `RANDOM.example.com`, an account
 * says: theirs should not be flooded either, whether such names lead nowhere or all to one place.
 */
export class LookUps {
  /** Of those that a look-up has cost a pause lately. */
  readonly #paces = new TtlMap<string, Pace>(PACES_MAX);
  /** Names that led on the last time. */
  readonly #ledOn = new TtlMap<string, true>(PACES_MAX);

  /** Waits, but not for long. */
  async begin(accountId: string, hostname: string): Promise<LookUp> {
    // Without its first label, at most the last two.
    const domain = `${accountId} ${hostname.split(".").slice(1).slice(-2).join(".")}`;
    const [ofDomain, ofAccount] = [
      this.#paceOf(domain, OF_DOMAIN_MS),
      this.#paceOf(accountId, OF_ACCOUNT_MS),
    ];
    const name = `${accountId} ${hostname}`;
    const leftMs = this.#ledOn.has(name) ? 0 : Math.max(ofDomain.leftMs, ofAccount.leftMs);
    if (leftMs > WAITED_OUT_MS)
      return { restMs: Math.max(leftMs, ofDomain.putOff(), ofAccount.putOff()), end: () => undefined };
    const [begunMs, begunOfAccountMs] = [ofDomain.begin(), ofAccount.begin()];
    if (leftMs > 0) await wait(leftMs);
    const end = (led: Led | null) => {
      this.#end(domain, ofDomain, led === "nowhere" || led === "to_wait", begunMs);
      this.#end(accountId, ofAccount, led === "nowhere", begunOfAccountMs);
      if (led === "on") this.#ledOn.set(name, true, LED_ON_MS);
      else if (led !== null) this.#ledOn.delete(name);
    };
    return { restMs: 0, end };
  }

  #paceOf(key: string, pauseMs: number): Pace {
    return this.#paces.get(key) ?? new Pace(pauseMs);
  }

  #end(key: string, begun: Pace, isCostly: boolean, begunMs: number): void {
    const pace = this.#paces.get(key) ?? begun;
    pace.end(isCostly, begunMs);
    if (isCostly) this.#paces.set(key, pace, REMEMBERED_MS);
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
  const { origin, hostname } = new URL(url);
  const { accountId } = asked;
  let isTaken = false;
  let waitMs: number | null = null;
  let isProven = false;
  let isUndecided = false;
  let lookUp: LookUp | null = null;
  let fault: Error | null = null;
  /** Null: its name may be looked up now. */
  const begin = async (): Promise<TurnTaken | null> => {
    lookUp = await turns.lookUps.begin(accountId, hostname);
    return lookUp.restMs === 0 ? null : { origin, restMs: lookUp.restMs };
  };
  const admit: Admit = async (address) => {
    fault = new Error("the database did not say in time whose turn it is");
    const more = { origin, address, leaseMs, isFurther: isTaken };
    const turn = await turns.take({ ...asked, ...more }).catch((error: Error) => {
      fault = error;
      throw error;
    });
    fault = null;
    ({ isProven, waitMs } = turn);
    isUndecided = turn.isAsked === false;
    if (waitMs !== null)
      throw new ConnectError("not_proven", `${origin} has not proven itself yet.`, { isUndecided });
    isTaken ||= !isProven;
  };
  /** Null: no turn was asked for, as its name leads nowhere. Throws a fault of ours before anything was sent. */
  const end = async (hasSucceeded: boolean): Promise<TurnTaken | null> => {
    if (fault !== null) throw fault;
    const isAsked = isTaken || isProven || waitMs !== null;
    const led = isTaken || isProven ? "on" : isAsked ? "to_wait" : "nowhere";
    lookUp?.end(isUndecided ? null : led);
    if (!isAsked) return null;
    // If that fails, the turn ends by itself, and the next POST proves the same.
    if (isTaken) await turns.end(accountId, url, hasSucceeded).catch(() => undefined);
    // Another address may have had it wait for longer: its turn at the first is over.
    const restMs = isTaken ? RECEIVER_EVERY_MS : waitMs;
    return { origin, restMs: isProven || hasSucceeded ? null : restMs };
  };
  return { begin, admit, end, isProven: () => isProven };
}
