// A dispatcher (lanes, claims, POSTs, records) over rows in memory, whatever settles first and whatever fails.
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { readConfig } from "../../src/base/config/config.ts";
import type { Claim } from "../../src/delivery/claim-sql.ts";
import { createDelivering } from "../../src/delivery/deliver.ts";
import { Dispatcher, type DispatcherOptions } from "../../src/delivery/dispatcher.ts";
import {
  type AnsweredLane,
  LANE_LIMITS,
  type LaneKey,
  type LaneLimits,
  type Overflow,
} from "../../src/delivery/lane.ts";
import type { TakenBack } from "../../src/delivery/promote-sql.ts";
import type { Recording } from "../../src/delivery/record-sql.ts";
import { webhookId } from "../../src/delivery/webhook.ts";
import type { Poster, PostRequest } from "../../src/egress/post/post.ts";
import { endWithError, type PostResult } from "../../src/egress/post/result.ts";
import { NO_UNSAFE_ALLOWED_TARGETS } from "../../src/egress/rules/host.ts";
import { BEGIN_MS, BIG_BYTES, MemoryRows, type Row, SECRETS_KEY } from "./memory-rows.ts";
import type { Schedule } from "./schedule.ts";

/** Small, so that few deliveries reach all of them. */
const LIMITS: LaneLimits = {
  ...LANE_LIMITS,
  inFlightMax: 6,
  silentInFlightMax: 3,
  accountSilentMin: 2,
  laneInFlightMax: 3,
  idsMax: 30,
  laneIdsMax: 6,
  silentLaneIdsMax: 3,
  accountSilentIdsMax: 5,
  accountIdsMin: 4,
};
const DELIVERIES_MAX = 14;
const DEADLINE_MS = 15_000;
/** From then on every receiver says yes. */
const ATTEMPTS_MAX = 3;
const BYTES_MAX = 64 * 1024 * 1024;
/** What the database refuses to store. */
const UNRECORDABLE = "\0";

/** Signed as in production; `poster` alone is the schedule's. No receiver has anything to prove. */
const delivering = createDelivering({
  config: readConfig({ ATTEMPT_DEADLINE_MS: String(DEADLINE_MS) }),
  egress: { unsafeAllowedTargets: NO_UNSAFE_ALLOWED_TARGETS } as never,
  secretsKey: SECRETS_KEY,
  random: () => 0.5,
  turns: {} as never,
});

class Refused extends pg.DatabaseError {
  constructor(code: string) {
    super("the database refuses", 0, "error");
    this.code = code;
  }
}

const cut = () => new Error("the connection was cut");

export class DispatchingWorld {
  readonly #schedule: Schedule;
  readonly #dispatcher: Dispatcher;
  readonly #rows: MemoryRows;
  readonly #posts = new Map<string, Row>();
  /** Lanes whose receivers have answered, `account/lane`. */
  readonly #answering = new Set<string>();
  /** Leases, `id token`: what the database has of them, what was told of that, and what was told here. */
  readonly #recorded = new Set<string>();
  readonly #acknowledged = new Set<string>();
  readonly #settled = new Set<string>();
  readonly #givenBack = new Set<string>();
  /** Leases that were granted, and when they were asked for. */
  readonly #granted = new Map<string, number>();
  /** What is asked and not answered, and wake-ups that are still to come. */
  #pending = 0;
  #isWriting = false;
  #overflowed = 0;
  #hasTwins = false;
  #isHalved = false;
  /** A lane had no room for something, as when it falls silent: the promoter sees to that. */
  #isFull = false;
  #hasStopped = false;
  /** Nothing fails any more. */
  #isCalm = false;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    this.#rows = new MemoryRows(() => schedule.time.nowMs);
    const options: DispatcherOptions = {
      delivering: { ...delivering, poster: { ...delivering.poster, post: this.#post } satisfies Poster },
      lanes: LIMITS,
      upkeep: {
        findAnswered: this.#findAnswered,
        rememberAnswered: () => this.#asked("remember", async () => undefined),
        findEndedRests: async () => [],
        takeBack: this.#takeBack,
      },
      claim: this.#claim,
      write: this.#write,
      giveBack: async (deliveryIds) => deliveryIds.forEach((id) => void this.#givenBack.add(id)),
      freeLeases: this.#freeLeases,
      observer: {
        attemptRecorded: ({ deliveryId, leaseToken }, _delivered, recorded) => {
          const lease = `${deliveryId} ${leaseToken}`;
          this.#expect(!this.#settled.has(lease), `${deliveryId} was settled twice`);
          this.#settled.add(lease);
          if (recorded === "ours") this.#expect(this.#recorded.has(lease), `${deliveryId} is not recorded`);
          if (recorded === "given_up") this.#giveUp(deliveryId, leaseToken);
        },
        mustBeQuarantined: (deliveryId) => {
          this.#rows.of(deliveryId).hasEnded = true;
        },
        overflowed: (count) => {
          this.#overflowed += count;
        },
        failed: (work, error) =>
          this.#expect(/was cut|database refuses|a bug/.test(String(error)), `${work}: ${error}`),
      },
    };
    this.#dispatcher = new Dispatcher(options);
  }

  /** @throws Error at the first violation */
  async play(): Promise<void> {
    const { chance } = this.#schedule;
    const bigShare = chance.pick([0, 0.2, 0.9]);
    for (let count = chance.between(1, DELIVERIES_MAX); count > 0; count--)
      this.#rows.publish(chance, bigShare);
    for (const row of this.#rows.all) this.#wakeLater(row, row.lane);
    if (chance.isTrue(0.3)) this.#wakeTwins();
    if (chance.isTrue(0.5)) {
      this.#schedule.turn("stop").then(() => this.#stop());
      await this.#playUntil(() => this.#hasStopped);
    } else {
      await this.#playUntil(() => this.#isQuiet);
      this.#expectNoneForgotten();
      await this.#promoteAll();
      this.#stop();
      await this.#playUntil(() => this.#hasStopped);
    }
    this.#expectNothingHalf();
    await this.#playUntil(() => this.#schedule.isIdle);
  }

  #wakeLater(row: Row, lane: string): void {
    this.#pending++;
    this.#schedule.turn(`wake ${nameOf(row)} in ${lane}`).then(() => {
      this.#pending--;
      this.#wake(row, lane);
    });
  }

  #wake(row: Row, lane: string): void {
    const before = this.#overflowed;
    const { deliveryId, accountId } = row;
    this.#dispatcher.wake([{ deliveryId, accountId, lane }]);
    if (this.#overflowed === before && !row.hasEnded) row.isTakenOn = true;
  }

  /** Some once more, and some in another lane, as after a change of the endpoint. */
  #wakeTwins(): void {
    const { chance } = this.#schedule;
    this.#hasTwins = true;
    for (const row of this.#rows.all)
      if (chance.isTrue(0.4)) this.#wakeLater(row, chance.isTrue(0.3) ? row.lane : "other");
  }

  /** What the leader does, until all has ended. */
  async #promoteAll(): Promise<void> {
    this.#isCalm = true;
    for (let rounds = 0; this.#rows.left.length > 0; rounds++) {
      this.#expect(rounds < 2 * DELIVERIES_MAX, "it is promoted for ever");
      for (const row of this.#rows.left) {
        Object.assign(row, { isUnreadable: false, isPoison: false, dueAtMs: 0, leaseUntilMs: 0 });
        this.#wake(row, row.lane);
      }
      await this.#playUntil(() => this.#isQuiet);
    }
  }

  async #stop(): Promise<void> {
    this.#isCalm ||= this.#schedule.chance.isTrue(0.3);
    await this.#dispatcher.stop();
    // In production the runner of wake-ups has ended by then.
    while (this.#pending > 0) await this.#schedule.turn("the runner ends");
    const { lanes, recorder, bytes } = this.#dispatcher;
    this.#expect(this.#posts.size === 0, "it has stopped, and posts");
    this.#expect(recorder.backlog === 0, "it has stopped, and something is not recorded");
    this.#expect(lanes.inFlight === 0, "it has stopped, and something is in flight");
    this.#expect(bytes.free === BYTES_MAX, "it has stopped, and holds bodies");
    await this.#dispatcher.giveBackWaiting();
    this.#hasStopped = true;
  }

  #expectNoneForgotten(): void {
    const forgotten = this.#rows.left.filter((row) => row.isTakenOn);
    this.#expect(this.#isFull || forgotten.length === 0, `forgotten: ${JSON.stringify(forgotten)}`);
    this.#expectNoneLeased();
  }

  #expectNothingHalf(): void {
    const kept = this.#rows.left.filter((row) => row.isTakenOn && !this.#givenBack.has(row.deliveryId));
    this.#expect(this.#isFull || kept.length === 0, `not given back: ${JSON.stringify(kept)}`);
    this.#expectNoneLeased();
  }

  #expectNoneLeased(): void {
    const leased = this.#rows.left.filter((row) => !row.isUnreadable && row.leaseUntilMs > this.#nowMs);
    this.#expect(leased.length === 0, `leased, and nobody has it: ${JSON.stringify(leased)}`);
  }

  get #nowMs(): number {
    return this.#schedule.time.nowMs;
  }

  get #isQuiet(): boolean {
    const { lanes, recorder } = this.#dispatcher;
    return this.#pending + lanes.inFlight + lanes.waitingIds + recorder.backlog + lanes.wanted.size === 0;
  }

  #look(): void {
    const { lanes, bytes, recorder } = this.#dispatcher;
    this.#isFull ||= lanes.overflowingLanes > 0;
    this.#expect(lanes.inFlight <= LIMITS.inFlightMax, "too many in flight");
    this.#expect(lanes.waitingIds <= LIMITS.idsMax, "too many waiting");
    // Each of two claims takes one body at least, and each part of one that was halved.
    this.#expect(this.#isHalved || bytes.free > -2 * BIG_BYTES, "too many bytes");
    const unsettled = this.#granted.size - this.#settled.size - this.#posts.size;
    this.#expect(recorder.backlog === unsettled, `${recorder.backlog} to be recorded of ${unsettled}`);
  }

  async #playUntil(isOver: () => boolean): Promise<void> {
    const { lanes, recorder } = this.#dispatcher;
    const describe = () =>
      `${lanes.inFlight} in flight, ${lanes.waitingIds} waiting, ${recorder.backlog} unrecorded, ` +
      `${this.#pending} pending; ${JSON.stringify(this.#rows.left)}`;
    await this.#schedule.play(isOver, () => this.#look(), describe);
  }

  #expect(isSo: boolean, otherwise: string): void {
    this.#schedule.expect(isSo, () => otherwise);
  }

  #fails(probability: number): boolean {
    return !this.#isCalm && this.#schedule.chance.isTrue(probability);
  }

  /** A statement: it may fail before it does anything, and after. */
  async #asked<T>(what: string, act: () => Promise<T>): Promise<T> {
    this.#expect(!this.#hasStopped, `it has stopped, and asks to ${what}`);
    this.#pending++;
    try {
      await this.#schedule.turn(what);
      if (this.#fails(0.1)) throw cut();
      const answer = await act();
      await this.#schedule.turn(`${what}: answered`);
      if (this.#fails(0.1)) throw cut();
      return answer;
    } finally {
      this.#pending--;
    }
  }

  readonly #claim: DispatcherOptions["claim"] = async (input) => {
    const { deliveryIds, leaseToken } = input;
    this.#expect(new Set(deliveryIds).size === deliveryIds.length, "claimed twice under one token");
    const askedAtMs = this.#nowMs;
    const claim = await this.#asked("claim", async (): Promise<Claim> => {
      const deliveries = this.#rows.claim(input);
      if (deliveries === null) {
        this.#isHalved = true;
        throw new Refused("XX001");
      }
      // Read a moment ago, and broken since.
      const { chance } = this.#schedule;
      if (this.#fails(0.03)) this.#rows.of(chance.pick(deliveryIds)).isUnreadable = true;
      return { deliveries, databaseNowMs: BEGIN_MS + this.#nowMs };
    });
    for (const { kind, deliveryId } of claim.deliveries) {
      if (kind !== "leased") continue;
      const lease = `${deliveryId} ${leaseToken}`;
      this.#expect(!this.#granted.has(lease), `${lease} was granted twice`);
      this.#granted.set(lease, askedAtMs);
    }
    return claim;
  };

  readonly #freeLeases: DispatcherOptions["freeLeases"] = async (deliveryIds, leaseToken) => {
    await this.#schedule.turn("free");
    this.#rows.free(deliveryIds, leaseToken);
  };

  readonly #findAnswered = (lanes: readonly LaneKey[]): Promise<readonly AnsweredLane[]> =>
    this.#asked("find answered lanes", async () => {
      const found = lanes.filter(() => this.#schedule.chance.isTrue(0.4));
      for (const { accountId, lane } of found) this.#answering.add(`${accountId}/${lane}`);
      return found.map((one) => ({ ...one, isSuspended: this.#schedule.chance.isTrue(0.1) }));
    });

  readonly #takeBack = (overflows: readonly Overflow[]): Promise<readonly TakenBack[]> =>
    this.#asked("take back", async () => overflows.map((overflow) => this.#rows.takeBack(overflow)));

  readonly #post = async ({ body, deadlineMs }: PostRequest): Promise<PostResult> => {
    const id = webhookId(body);
    const row = this.#rows.of(id);
    this.#expect(!this.#posts.has(id), `${id} is posted twice at once`);
    this.#expect(!row.hasEnded, `${id} is posted when it has ended`);
    this.#expect(row.leaseUntilMs - this.#nowMs >= deadlineMs, `the POST of ${id} may outlast its lease`);
    this.#posts.set(id, row);
    this.#expectWithinLimits();
    const leaving = new AbortController();
    const late = wait(deadlineMs, "late", leaving).catch(() => "late");
    const ended = await Promise.race([this.#schedule.turn(`answer ${nameOf(row)}`), late]);
    leaving.abort();
    this.#posts.delete(id);
    if (this.#fails(0.03)) throw new Error("a bug");
    const result = ended === "late" ? endedWith("response_timeout") : this.#answer(row);
    if (result.statusCode !== null) this.#answering.add(laneOf(row));
    return result;
  };

  #answer({ attempts }: Row): PostResult {
    if (this.#isCalm || attempts + 1 >= ATTEMPTS_MAX) return answeredWith(200);
    const kind = this.#schedule.chance.next();
    if (kind < 0.6) return answeredWith(200);
    if (kind < 0.7) return answeredWith(503);
    if (kind < 0.75) return { ...answeredWith(500), responseExcerpt: UNRECORDABLE };
    if (kind < 0.85) return endedWith("connect_refused");
    if (kind < 0.93) return { ...endedWith("egress_proxy_failed"), mayHaveWritten: false };
    return { ...endedWith("not_proven"), mayHaveWritten: false };
  }

  #expectWithinLimits(): void {
    const silent = [...this.#posts.values()].filter((row) => !this.#answering.has(laneOf(row)));
    this.#expect(this.#posts.size <= LIMITS.inFlightMax, "too many POSTs");
    if (this.#hasTwins) return;
    this.#expect(silent.length <= LIMITS.silentInFlightMax, "too many POSTs to silent receivers");
    for (const [lane, posts] of Map.groupBy(this.#posts.values(), laneOf))
      this.#expect(posts.length <= LIMITS.laneInFlightMax, `too many POSTs to ${lane}`);
  }

  readonly #write: DispatcherOptions["write"] = async (recordings) => {
    this.#expect(!this.#isWriting, "two writes at once");
    this.#isWriting = true;
    for (const one of recordings) this.#expectWritable(one);
    try {
      const ours = await this.#asked("write", async () => {
        const hasBad = ({ attempt }: Recording) => attempt?.responseExcerpt === UNRECORDABLE;
        if (recordings.some(hasBad)) throw new Refused("22P05");
        const ours = recordings.filter((one) => this.#rows.record(one));
        for (const { deliveryId, leaseToken } of ours) this.#recorded.add(`${deliveryId} ${leaseToken}`);
        return new Set(ours.map(({ deliveryId }) => deliveryId));
      });
      for (const { deliveryId, leaseToken } of recordings)
        this.#acknowledged.add(`${deliveryId} ${leaseToken}`);
      return ours;
    } finally {
      this.#isWriting = false;
    }
  };

  /** Its lease is as good as over: the next claim finds it cut. */
  #giveUp(deliveryId: string, leaseToken: string): void {
    const row = this.#rows.of(deliveryId);
    const isOver = this.#nowMs >= this.#granted.get(`${deliveryId} ${leaseToken}`)! + delivering.leaseMs;
    this.#expect(isOver, `${deliveryId} was given up too soon`);
    if (row.token === leaseToken) Object.assign(row, { leaseUntilMs: 0, isTakenOn: false });
  }

  #expectWritable({ deliveryId, leaseToken }: Recording): void {
    const row = this.#rows.of(deliveryId);
    this.#expect(!this.#acknowledged.has(`${deliveryId} ${leaseToken}`), `${deliveryId} is written twice`);
    this.#expect(row.leaseUntilMs > this.#nowMs || row.token !== leaseToken, `${deliveryId} is written late`);
  }
}

const nameOf = ({ deliveryId }: Row) => deliveryId.slice(-2);
const laneOf = ({ accountId, lane }: Row) => `${accountId}/${lane}`;

const ENDED = {
  remoteAddress: null,
  certificateEndsAtMs: null,
  timings: { dnsMs: null, connectMs: null, tlsMs: null, firstByteMs: null },
  durationMs: 1,
  mayHaveWritten: true,
};

function answeredWith(statusCode: 200 | 500 | 503): PostResult {
  const [outcome, errorCode] =
    statusCode === 200 ? (["succeeded", null] as const) : (["rejected", `status_${statusCode}`] as const);
  const told = { retryAfter: null, isRefusal: false, responseHeaders: null, responseExcerpt: null };
  return { ...ENDED, ...told, outcome, errorCode, statusCode };
}

function endedWith(errorCode: Parameters<typeof endWithError>[0]): PostResult {
  return { ...ENDED, ...endWithError(errorCode) };
}
