import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { INTERRUPTIONS_BEFORE_ALONE } from "../schedule/life.ts";
import type { Claim, LeasedDelivery } from "../store/claim.ts";
import { dayOf } from "../store/day.ts";
import type { Recording } from "../store/record.ts";
import { type Delivered, type Delivering, deliver, releaseAfterFault } from "./deliver.ts";
import { type LaneLimits, Lanes, type WaitingDelivery } from "./lanes.ts";
import { type Recorded, Recorder } from "./recorder.ts";

/** A lease outlasts the attempt's deadline by this much: room for the claim's answer and for recording. */
export const LEASE_MARGIN_MS = 5_000;
/** A POST starts only while its claim is younger than this, so that it ends, recorded, within the lease. */
export const START_WITHIN_MS = 3_000;
const CLAIM_ROWS_MAX = 200;
const CLAIM_BYTES_MAX = 8 * 1024 * 1024;
const IN_FLIGHT_BYTES_MAX = 64 * 1024 * 1024;
/** Outcomes that wait for the database; beyond this nothing new is claimed. */
const UNRECORDED_MAX = 2_000;
/** More would take seconds, and whoever asked for the stop waits for it. The promoter finds the others by itself. */
const GIVEN_BACK_MAX = 10_000;
const CLAIM_RETRY_MS = 100;
const CLAIM_RETRY_MAX_MS = 2_000;

export type DispatcherOptions = {
  readonly delivering: Delivering;
  readonly lanes: LaneLimits;
  readonly claim: (input: {
    readonly deliveryIds: readonly string[];
    readonly leaseToken: string;
    readonly leaseMs: number;
    readonly bytesMax: number;
    readonly isAlone: boolean;
    readonly interruptionsBeforeAlone: number;
    readonly attemptsMax: number;
  }) => Promise<Claim>;
  readonly write: (recordings: readonly Recording[]) => Promise<ReadonlySet<string>>;
  /** Has others woken for deliveries that waited here and will not be claimed here any more. */
  readonly giveBack: (deliveryIds: readonly string[]) => Promise<void>;
  /** Frees what a claim under this token has leased, whose answer is not waited for any more. */
  readonly freeLeases: (deliveryIds: readonly string[], leaseToken: string) => Promise<void>;
  readonly isUnreadableData: (error: unknown) => boolean;
  readonly isRefusedData: (error: unknown) => boolean;
  readonly observer: DispatchObserver;
};

/** Told of everything that happens, for logs, metrics and tests. Must not throw. */
export type DispatchObserver = {
  readonly attemptRecorded: (delivery: LeasedDelivery, delivered: Delivered, recorded: Recorded) => void;
  /** Interrupted twice in a row: has to be posted where nothing else is in flight. */
  readonly mustGoAlone: (deliveryId: string) => void;
  readonly letGo: (count: number) => void;
  readonly claimed: (asked: number, leased: number, tookMs: number) => void;
  readonly failed: (work: "claim" | "deliver" | "record", error: unknown) => void;
};

/**
 * Turns wake-ups into attempts: takes ids in turn from the lanes, claims them in batches, delivers each, and has the
 * outcomes recorded in batches. One claim runs at a time; what becomes startable meanwhile is the next batch.
 */
export class Dispatcher {
  readonly lanes: Lanes;
  readonly recorder: Recorder;
  readonly #options: DispatcherOptions;
  readonly #leaseMs: number;
  #running = 0;
  #bytesInFlight = 0;
  #isClaiming = false;
  #claiming: Promise<void> = Promise.resolve();
  #isStopping = false;
  #roomWaiters: (() => void)[] = [];
  #idleWaiters: (() => void)[] = [];

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#leaseMs = options.delivering.deadlineMs + LEASE_MARGIN_MS;
    this.lanes = new Lanes(options.lanes);
    this.recorder = new Recorder({
      write: options.write,
      partOf: ({ deliveryId }) => dayOf(deliveryId),
      isRefusedData: options.isRefusedData,
      onError: (error) => options.observer.failed("record", error),
    });
  }

  /**
   * Resolves when there is room for another wake-up. Deliveries in lanes that are full do not count: they wait apart.
   */
  async wake(waiting: readonly WaitingDelivery[]): Promise<void> {
    let letGo = 0;
    for (const delivery of waiting) if (!this.lanes.add(delivery)) letGo++;
    if (letGo > 0) this.#options.observer.letGo(letGo);
    this.#pump();
    while (!this.#isStopping && this.lanes.startableIds > 2 * this.#options.lanes.inFlightMax) {
      await new Promise<void>((resolve) => this.#roomWaiters.push(resolve));
    }
  }

  /** Claims nothing more and resolves when all that was claimed has ended and is recorded. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.#wakeRoomWaiters();
    while (this.#isClaiming) await this.#claiming;
    if (this.#running === 0) return;
    await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
  }

  /** After the last wake-up: what still waits here is due and others may have it. */
  async giveBackWaiting(): Promise<void> {
    const waiting = this.lanes.clear().slice(0, GIVEN_BACK_MAX);
    // If that fails, the promoter finds them all the same, only later.
    await this.#options.giveBack(waiting).catch(() => undefined);
  }

  #pump(): void {
    if (this.#isClaiming || this.#isStopping) return;
    this.#isClaiming = true;
    // What this turn of the event loop makes startable belongs to the same claim.
    this.#claiming = new Promise(setImmediate).then(() => this.#claimNext());
  }

  async #claimNext(): Promise<void> {
    const bytesMax = Math.min(CLAIM_BYTES_MAX, IN_FLIGHT_BYTES_MAX - this.#bytesInFlight);
    const hasRoom = !this.#isStopping && bytesMax > 0 && this.recorder.backlog < UNRECORDED_MAX;
    const taken = hasRoom ? this.#withoutTwins(this.lanes.take(CLAIM_ROWS_MAX)) : [];
    if (taken.length > 0) await this.#claim(taken, bytesMax);
    this.#isClaiming = false;
    this.#wakeRoomWaiters();
    if (taken.length > 0) this.#pump();
  }

  /** An id waits in two lanes when wake-ups of it name two. Claimed twice under one token it would be posted twice. */
  #withoutTwins(taken: readonly WaitingDelivery[]): readonly WaitingDelivery[] {
    const ids = new Set<string>();
    return taken.filter(({ deliveryId, lane }) => {
      if (!ids.has(deliveryId)) return ids.add(deliveryId);
      this.lanes.release(lane, "unknown");
      return false;
    });
  }

  /**
   * Claims until the database answers: a claim whose answer was lost may have leased its rows, and asking again with
   * the same token gets them back, where they would otherwise count as interrupted.
   */
  async #claim(
    taken: readonly WaitingDelivery[],
    bytesMax: number,
    leaseToken: string = randomUUID(),
  ): Promise<void> {
    const { observer, delivering, claim } = this.#options;
    const input = {
      deliveryIds: taken.map((waiting) => waiting.deliveryId),
      leaseToken,
      leaseMs: this.#leaseMs,
      bytesMax,
      isAlone: false,
      interruptionsBeforeAlone: INTERRUPTIONS_BEFORE_ALONE,
      attemptsMax: delivering.policy.attempts,
    };
    let failures = 0;
    for (; !this.#isStopping; failures++) {
      const askedAtMs = performance.now();
      const claimed = await claim(input).catch((error: unknown) => {
        observer.failed("claim", error);
        return this.#options.isUnreadableData(error) ? "unreadable" : null;
      });
      if (claimed === "unreadable") return await this.#claimHalves(taken, bytesMax, leaseToken);
      if (claimed !== null) return this.#start(taken, claimed, askedAtMs);
      await wait(Math.min(CLAIM_RETRY_MS * 2 ** failures, CLAIM_RETRY_MAX_MS));
    }
    // One of them may have leased its rows. If this fails, too, their attempts are written down as interrupted.
    if (failures > 0) await this.#options.freeLeases(input.deliveryIds, leaseToken).catch(() => undefined);
    for (const waiting of taken) this.lanes.release(waiting.lane, "unknown");
  }

  /**
   * One row that the database refuses must not hold up its neighbours: alone it is let go, and stays due. Still the
   * same token: what was leased before the refusal is among the halves.
   */
  async #claimHalves(taken: readonly WaitingDelivery[], bytesMax: number, leaseToken: string): Promise<void> {
    if (taken.length === 1) return this.lanes.release(taken[0]!.lane, "unknown");
    const middle = taken.length >> 1;
    await this.#claim(taken.slice(0, middle), bytesMax >> 1, leaseToken);
    await this.#claim(taken.slice(middle), bytesMax >> 1, leaseToken);
  }

  #start(taken: readonly WaitingDelivery[], claim: Claim, claimedAtMs: number): void {
    const { observer, delivering } = this.#options;
    const answeredAtMs = performance.now();
    if (claim.databaseNowMs !== null)
      delivering.clock.observe(claim.databaseNowMs, claimedAtMs, answeredAtMs);
    observer.claimed(taken.length, claim.deliveries.length, answeredAtMs - claimedAtMs);
    const answers = new Map(claim.deliveries.map((delivery) => [delivery.deliveryId, delivery]));
    for (const waiting of taken) {
      const answer = answers.get(waiting.deliveryId);
      if (answer?.kind === "leased") {
        void this.#run(answer, waiting.lane, claimedAtMs);
        continue;
      }
      // Not due, leased by somebody else, or gone: whoever has it now sees to it.
      this.lanes.release(waiting.lane, "unknown");
      if (answer?.kind === "left") this.lanes.add(waiting);
      if (answer?.kind === "must_go_alone") observer.mustGoAlone(waiting.deliveryId);
    }
  }

  async #run(delivery: LeasedDelivery, lane: string, claimedAtMs: number): Promise<void> {
    const { observer, delivering } = this.#options;
    this.#running++;
    this.#bytesInFlight += delivery.bodyBytes;
    let delivered: Delivered;
    try {
      delivered = await deliver(
        delivery,
        delivering,
        () => performance.now() - claimedAtMs < START_WITHIN_MS,
      );
    } catch (error) {
      observer.failed("deliver", error);
      delivered = releaseAfterFault(delivery, delivering);
    }
    this.lanes.release(lane, answerOf(delivered));
    this.#pump();
    const recorded = await this.recorder.record(delivered.recording, claimedAtMs + this.#leaseMs);
    observer.attemptRecorded(delivery, delivered, recorded);
    this.#bytesInFlight -= delivery.bodyBytes;
    this.#running--;
    if (this.#running === 0) for (const resolve of this.#idleWaiters.splice(0)) resolve();
    // What is unrecorded holds claiming up, in number and in bytes; nobody else would start it again.
    this.#pump();
  }

  #wakeRoomWaiters(): void {
    const waiters = this.#roomWaiters;
    this.#roomWaiters = [];
    for (const resolve of waiters) resolve();
  }
}

/**
 * Did the receiver answer at all? A refusal is an answer; a time-out, a reset or a dead name is silence. What was not
 * its failure (no attempt was used up) says nothing of it: our egress proxy being down must not make everybody silent.
 */
function answerOf({ recording, result }: Delivered): "answered" | "silent" | "unknown" {
  if (result === null || recording.attempt === null) return "unknown";
  return result.statusCode === null ? "silent" : "answered";
}
