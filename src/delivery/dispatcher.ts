import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { dayOf } from "../base/database/partitions.ts";
import { isUnreadableData } from "../base/database/pools.ts";
import { backoffMs } from "../base/model/backoff.ts";
import type { DispatchObserver } from "./attempt-observers.ts";
import type { Claim, ClaimInput, LeasedDelivery } from "./claim-sql.ts";
import { asMeant, type Delivered, type Delivering, deliver, releaseAfterFault } from "./deliver.ts";
import type { LaneAnswer, LaneLimits, TakenDelivery, WaitingDelivery } from "./lane.ts";
import { LaneUpkeep, type LaneUpkeepOptions } from "./lane-upkeep.ts";
import { Lanes } from "./lanes.ts";
import type { Recording } from "./record-sql.ts";
import { createRecorder, type Recorder } from "./recorder.ts";

/** A POST starts only while its claim is younger than this, so that it ends, recorded, within the lease. */
const START_WITHIN_MS = 3_000;

export type AttemptsOptions = {
  readonly delivering: Delivering;
  readonly claim: (input: Omit<ClaimInput, "at">) => Promise<Claim>;
  readonly write: (recordings: readonly Recording[]) => Promise<ReadonlySet<string>>;
  readonly observer: DispatchObserver;
  /** Whether this process posts one delivery at a time, so that a poisonous one harms no other. */
  readonly isInQuarantine: boolean;
  /** Absent: nothing is traced. */
  readonly beginTrace?: BeginTrace | undefined;
};

/** The delivery in its attempt's own place in its trace; its claim's time is monotonic, and now the database's. */
export type BeginTrace = (delivery: LeasedDelivery, claimAskedAtMs: number, nowMs: number) => LeasedDelivery;

/** `askedAtMs`, on the monotonic clock: the leases were taken then or later. */
export type Claimed = Claim & { readonly askedAtMs: number };

export type Attempts = ReturnType<typeof createAttempts>;

/** What every attempt goes through, in a crowd or in quarantine: claim → deliver → record. */
export function createAttempts(options: AttemptsOptions) {
  const { delivering, observer, isInQuarantine } = options;
  const { leaseMs } = delivering;
  const recorder = createRecorder({
    write: options.write,
    partOf: ({ deliveryId }) => dayOf(deliveryId),
    onError: (error) => observer.failed("record", error),
    random: delivering.random,
  });

  return {
    recorder,

    /**
     * Leases what is due of these, and corrects the clock by the answer. When it rejects, rows may be leased all the
     * same: asking again with the same token gets them back, where they would otherwise count as interrupted.
     */
    async claim(deliveryIds: readonly string[], leaseToken: string, bytesMax: number): Promise<Claimed> {
      const attemptsMax = delivering.policy.attempts;
      const asked = { deliveryIds, leaseToken, leaseMs, bytesMax, isInQuarantine, attemptsMax };
      const askedAtMs = performance.now();
      const claimed = await options.claim(asked);
      const { databaseNowMs } = claimed;
      if (databaseNowMs !== null) delivering.clock.observe(databaseNowMs, askedAtMs, performance.now());
      return { ...claimed, deliveries: await asMeant(claimed.deliveries, delivering), askedAtMs };
    },

    /** Resolves with the outcome once it is recorded, or its lease is over. `onDelivered` is called in between. */
    async run(
      claimed: LeasedDelivery,
      askedAtMs: number,
      onDelivered: (delivered: Delivered) => void = () => undefined,
    ): Promise<Delivered> {
      const delivery = options.beginTrace?.(claimed, askedAtMs, delivering.clock.nowMs()) ?? claimed;
      const mayStart = () => performance.now() - askedAtMs < START_WITHIN_MS;
      const delivered = await deliver(delivery, delivering, mayStart).catch((error: unknown) => {
        observer.failed("deliver", error);
        return releaseAfterFault(delivery, delivering);
      });
      onDelivered(delivered);
      const recorded = await recorder.record(delivered.recording, askedAtMs + leaseMs);
      observer.attemptRecorded(delivery, delivered, recorded);
      return delivered;
    },
  };
}

/** Bodies in flight, so that memory stays bounded, shared by account. */
const BYTES_MAX = 64 * 1024 * 1024;
/** Of these, what only accounts that hold next to nothing get. */
const RESERVED_BYTES = 8 * 1024 * 1024;
const NEXT_TO_NOTHING_BYTES = 64 * 1024;

/**
 * Bytes of bodies that are being posted. An account that holds more than is left free, but for the reserve, starts
 * nothing: a dynamic threshold, as in `AccountTurns`.
 */
export class BytesInFlight {
  readonly #byAccount = new Map<string, number>();
  readonly #overBudget = new Set<string>();
  readonly #setOverBudget: (accountId: string, isOverBudget: boolean) => void;
  #total = 0;

  constructor(setOverBudget: (accountId: string, isOverBudget: boolean) => void) {
    this.#setOverBudget = setOverBudget;
  }

  /** Accounts that start nothing until they hold less. */
  get accountsOverBudget(): number {
    return this.#overBudget.size;
  }

  get free(): number {
    return BYTES_MAX - this.#total;
  }

  /** `bytes`: negative when a body is done with. */
  count(accountId: string, bytes: number): void {
    this.#total += bytes;
    const held = (this.#byAccount.get(accountId) ?? 0) + bytes;
    if (held === 0) this.#byAccount.delete(accountId);
    else this.#byAccount.set(accountId, held);
    this.#judge(accountId);
    if (bytes < 0) for (const other of this.#overBudget) this.#judge(other);
  }

  #judge(accountId: string): void {
    const bytes = this.#byAccount.get(accountId) ?? 0;
    const isOverBudget = bytes > NEXT_TO_NOTHING_BYTES && bytes > this.free - RESERVED_BYTES;
    if (isOverBudget === this.#overBudget.has(accountId)) return;
    if (isOverBudget) this.#overBudget.add(accountId);
    else this.#overBudget.delete(accountId);
    this.#setOverBudget(accountId, isOverBudget);
  }
}

const CLAIM_ROWS_MAX = 200;
const CLAIM_BYTES_MAX = 8 * 1024 * 1024;
/** The same of a claim that runs beside another. */
const EXPRESS_ROWS_MAX = 32;
const EXPRESS_BYTES_MAX = 1024 * 1024;
/** Outcomes that wait for the database; beyond this nothing new is claimed. */
const UNRECORDED_MAX = 2_000;
/** More would take seconds, and a shutdown waits for it. The promoter finds the others by itself. */
const GIVEN_BACK_MAX = 10_000;
const CLAIM_BACKOFF = { baseMs: 100, maxMs: 2_000 };

/** Where a claim may run; null: none does. */
type Slot = { claiming: Promise<void> | null };

/** What an attempt told of its receiver that was never made. */
const UNKNOWN: LaneAnswer = { kind: "unknown" };

export type DispatcherOptions = Omit<AttemptsOptions, "isInQuarantine"> & {
  readonly lanes: LaneLimits;
  readonly upkeep: Pick<
    LaneUpkeepOptions,
    "findAnswered" | "rememberAnswered" | "findEndedRests" | "takeBack"
  >;
  /** Wakes other dispatchers for deliveries that waited here and will not be claimed here any more. */
  readonly giveBack: (deliveryIds: readonly string[]) => Promise<void>;
  /** Frees what a claim under this token leased when its answer is no longer waited for. */
  readonly freeLeases: (deliveryIds: readonly string[], leaseToken: string) => Promise<void>;
};

/**
 * Turns wake-ups into attempts: takes ids from the lanes in turn, claims them in batches, delivers each, and records
 * the outcomes in batches. What becomes startable while a claim runs is the next batch. Accounts with nothing in flight
 * do not wait for a claim that is made for others: beside it there may be another one, a small one for them.
 */
export class Dispatcher {
  readonly lanes: Lanes;
  readonly bytes: BytesInFlight;
  readonly #options: DispatcherOptions;
  readonly #attempts: Attempts;
  readonly #upkeep: LaneUpkeep;
  #running = 0;
  readonly #main: Slot = { claiming: null };
  readonly #express: Slot = { claiming: null };
  #isStopping = false;
  #idleWaiters: (() => void)[] = [];

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.lanes = new Lanes(options.lanes);
    this.bytes = new BytesInFlight((accountId, isOverBudget) =>
      this.lanes.setOverBudget(accountId, isOverBudget),
    );
    this.#upkeep = new LaneUpkeep(this.lanes, {
      ...options.upkeep,
      onChanged: () => this.#pump(),
      onError: (error) => options.observer.failed("lanes", error),
      random: options.delivering.random,
    });
    this.#attempts = createAttempts({ ...options, isInQuarantine: false });
  }

  get recorder(): Recorder {
    return this.#attempts.recorder;
  }

  /**
   * Queues what may be due. Never waits: with the queue's head held up by one account's work, another's would never be
   * found. What there is no room for overflows, and is taken back when its lane has some.
   */
  wake(waiting: readonly WaitingDelivery[]): void {
    let overflowed = 0;
    for (const delivery of waiting) if (!this.lanes.add(delivery)) overflowed++;
    if (overflowed > 0) this.#options.observer.overflowed(overflowed);
    this.#pump();
  }

  /** Claims nothing more; resolves when everything claimed has ended and is recorded. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#upkeep.stop();
    for (const slot of [this.#main, this.#express]) while (slot.claiming !== null) await slot.claiming;
    if (this.#running === 0) return;
    await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
  }

  /** After the last wake-up: what still waits here is due, and others may have it. */
  async giveBackWaiting(): Promise<void> {
    const waiting = this.lanes.clear(GIVEN_BACK_MAX);
    // If that fails, the promoter finds them all the same, only later.
    await this.#options.giveBack(waiting).catch(() => undefined);
  }

  #pump(): void {
    this.#upkeep.look();
    const slot = this.#main.claiming !== null ? this.#express : this.#main;
    if (slot.claiming !== null || this.#isStopping) return;
    // Whatever becomes startable in this turn of the event loop joins the same claim.
    slot.claiming = new Promise(setImmediate).then(() => this.#claimNext(slot));
  }

  async #claimNext(slot: Slot): Promise<void> {
    const isExpress = slot === this.#express;
    const bytesMax = Math.min(isExpress ? EXPRESS_BYTES_MAX : CLAIM_BYTES_MAX, this.bytes.free);
    const hasRoom = !this.#isStopping && bytesMax > 0 && this.recorder.backlog < UNRECORDED_MAX;
    const take = () =>
      isExpress ? this.lanes.takeOfIdle(EXPRESS_ROWS_MAX) : this.lanes.take(CLAIM_ROWS_MAX);
    const taken = hasRoom ? this.#withoutTwins(take()) : [];
    if (taken.length > 0) await this.#claim(taken, bytesMax);
    slot.claiming = null;
    if (taken.length > 0) this.#pump();
  }

  /** Wake-ups that name two lanes leave an id in both. Claimed twice under one token it would be posted twice. */
  #withoutTwins(taken: readonly TakenDelivery[]): readonly TakenDelivery[] {
    const ids = new Set<string>();
    return taken.filter((one) => {
      if (!ids.has(one.deliveryId)) return ids.add(one.deliveryId);
      this.lanes.release(one, UNKNOWN);
      return false;
    });
  }

  /** Claims until the database answers, always with the same token: see `Attempts.claim`. */
  async #claim(
    taken: readonly TakenDelivery[],
    bytesMax: number,
    leaseToken: string = randomUUID(),
  ): Promise<void> {
    const { observer, delivering } = this.#options;
    const deliveryIds = taken.map((waiting) => waiting.deliveryId);
    let failures = 0;
    for (; !this.#isStopping; failures++) {
      const claimed = await this.#attempts
        .claim(deliveryIds, leaseToken, bytesMax)
        .catch((error: unknown) => {
          observer.failed("claim", error);
          return isUnreadableData(error) ? "unreadable" : null;
        });
      if (claimed === "unreadable") return await this.#claimHalves(taken, bytesMax, leaseToken);
      if (claimed !== null) return this.#start(taken, claimed);
      await wait(backoffMs(failures, CLAIM_BACKOFF, delivering.random()));
    }
    // A claim whose answer was lost may have leased its rows. If this fails too, they count as interrupted.
    await this.#options.freeLeases(deliveryIds, leaseToken).catch(() => undefined);
    for (const one of taken) this.lanes.release(one, UNKNOWN);
    // With all that waits they are given back.
    for (const one of taken) this.lanes.add(one);
  }

  /**
   * One row that the database refuses must not hold up its neighbours: halved down to it, it is dropped and stays due.
   * Still the same token: what was leased before the refusal is among the halves.
   */
  async #claimHalves(taken: readonly TakenDelivery[], bytesMax: number, leaseToken: string): Promise<void> {
    if (taken.length === 1) return this.lanes.release(taken[0]!, UNKNOWN);
    const middle = taken.length >> 1;
    await this.#claim(taken.slice(0, middle), bytesMax >> 1, leaseToken);
    await this.#claim(taken.slice(middle), bytesMax >> 1, leaseToken);
  }

  #start(taken: readonly TakenDelivery[], { deliveries, askedAtMs }: Claimed): void {
    const { observer } = this.#options;
    const answers = new Map(deliveries.map((delivery) => [delivery.deliveryId, delivery]));
    for (const waiting of taken) {
      const answer = answers.get(waiting.deliveryId);
      if (answer?.kind === "leased") {
        void this.#run(answer, waiting, askedAtMs);
        continue;
      }
      // Not due, leased by another dispatcher, or gone.
      this.lanes.release(waiting, UNKNOWN);
      if (answer?.kind === "left") this.lanes.add(waiting);
      if (answer?.kind === "must_be_quarantined") observer.mustBeQuarantined(waiting.deliveryId);
    }
  }

  async #run(delivery: LeasedDelivery, taken: TakenDelivery, askedAtMs: number): Promise<void> {
    this.#running++;
    this.bytes.count(taken.accountId, delivery.bodyBytes);
    const release = (delivered: Delivered) => {
      this.lanes.release(taken, answerOf(delivered), delivered.turn);
      this.#pump();
    };
    const delivered = await this.#attempts.run(delivery, askedAtMs, (one) => waits(one) || release(one));
    // It keeps its place until the lease is given back: a claim would pass it over, if its lane's rest ended before.
    if (waits(delivered)) {
      release(delivered);
      this.lanes.putBack(taken);
    }
    this.bytes.count(taken.accountId, -delivery.bodyBytes);
    this.#running--;
    if (this.#running === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve();
    // What is unrecorded holds up claiming, in number and in bytes; nothing else would start it again.
    this.#pump();
  }
}

const waits = ({ recording }: Delivered) => recording.next.status === "waits";

/**
 * Did the receiver answer at all? A refusal is an answer; a timeout, a reset or a dead name is silence. What was not
 * its failure (no attempt was used up) says nothing about it: an egress proxy that is down must not make all silent.
 */
function answerOf({ recording, result }: Delivered): LaneAnswer {
  // Without an attempt and without an error it has confirmed a challenge.
  if (result === null || (recording.attempt === null && result.errorCode !== null)) return UNKNOWN;
  if (result.statusCode === null) return { kind: "silent" };
  if (OVERLOAD_STATUSES.includes(result.statusCode)) return { kind: "overloaded" };
  const isFailure = result.outcome !== "succeeded";
  return { kind: "answered", firstByteMs: result.timings.firstByteMs, isFailure };
}

/** Too Many Requests, Service Unavailable: the receiver asks for less. */
const OVERLOAD_STATUSES = [429, 503];
