import { abortableDelay, type Backoff, createBackoff } from "../base/model/backoff.ts";
import type { AnsweredLane, LaneKey, Overflow, RestingLane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { TakenBack } from "./promote-sql.ts";

const LANES_PER_STATEMENT_MAX = 1_000;
/** Each is compared with each row of their accounts that is looked at. */
const OVERFLOWS_PER_STATEMENT_MAX = 64;
/** What has answered for the first time is gathered for so long: nobody waits for it. */
const REMEMBER_AFTER_MS = 500;
/** Receivers that have never answered here are looked up again: another dispatcher may have met them by now. */
const ASK_AGAIN_EVERY_MS = 1_100;
/** Of those that rest, whoever's rest is over may start, so often. */
const END_RESTS_EVERY_MS = 250;
const BACKOFF = { baseMs: 100, maxMs: 5_000 };

export type LaneUpkeepOptions = {
  /** Those whose receiver has answered at some time, as the database remembers. */
  readonly findAnswered: (lanes: readonly LaneKey[]) => Promise<readonly AnsweredLane[]>;
  readonly rememberAnswered: (lanes: readonly AnsweredLane[]) => Promise<void>;
  /** Those of their receivers that were proven, here or elsewhere, or that the endpoint has left. */
  readonly findEndedRests: (resting: readonly RestingLane[]) => Promise<readonly string[]>;
  /** Deliveries of lanes that had no room for them, in the same order. */
  readonly takeBack: (overflows: readonly Overflow[]) => Promise<readonly TakenBack[]>;
  /** Something may have become startable. */
  readonly onChanged: () => void;
  readonly onError: (error: unknown) => void;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

type Work = "find" | "remember" | "take_back" | "prove";

/**
 * What lanes need of the database, apart from claims: whether one's receiver has answered before, to note those
 * that answer for the first time, and to fetch what overflowed once there is room. Each in batches, one at a time: a
 * batch is what gathered while the last statement ran.
 */
export class LaneUpkeep {
  readonly #lanes: Lanes;
  readonly #options: LaneUpkeepOptions;
  readonly #running = new Map<Work, Promise<void>>();
  readonly #stopping = new AbortController();
  readonly #backoffs: Readonly<Record<Work, Backoff>>;
  readonly #askingAgain: NodeJS.Timeout;
  #endingRests: NodeJS.Timeout | null = null;
  /** Drained from the lanes and not yet in the database. */
  #unremembered: readonly AnsweredLane[] = [];

  constructor(lanes: Lanes, options: LaneUpkeepOptions) {
    this.#lanes = lanes;
    this.#options = options;
    // One each: what works must not shorten the pauses of what fails, nor be slowed down by it.
    const newBackoff = () => createBackoff(BACKOFF, options.random);
    this.#backoffs = {
      find: newBackoff(),
      remember: newBackoff(),
      take_back: newBackoff(),
      prove: newBackoff(),
    };
    this.#askingAgain = setInterval(() => {
      lanes.askAgain(LANES_PER_STATEMENT_MAX);
      this.#begin("prove", lanes.rests.size, () => this.#prove());
      this.look();
    }, ASK_AGAIN_EVERY_MS).unref();
  }

  /** Begins what there is to do, unless it is being done. */
  look(): void {
    this.#begin("find", this.#lanes.created.size, () => this.#find());
    const answered = this.#unremembered.length + this.#lanes.answered.size;
    this.#begin("remember", answered, () => this.#remember());
    this.#begin("take_back", this.#lanes.wanted.size, () => this.#takeBack());
    if (this.#lanes.rests.size > 0 && !this.#stopping.signal.aborted)
      this.#endingRests ??= setTimeout(() => this.#endRests(), END_RESTS_EVERY_MS).unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#askingAgain);
    clearTimeout(this.#endingRests ?? undefined);
    this.#stopping.abort();
    await Promise.all(this.#running.values());
  }

  #endRests(): void {
    this.#endingRests = null;
    if (this.#lanes.rests.look(performance.now())) this.#options.onChanged();
    this.look();
  }

  #begin(work: Work, count: number, step: () => Promise<void>): void {
    if (count === 0 || this.#running.has(work) || this.#stopping.signal.aborted) return;
    const done = this.#try(work, step).then(() => {
      this.#running.delete(work);
      // What came in the very last turn.
      this.look();
    });
    this.#running.set(work, done);
  }

  /** One step; one that fails is followed by a pause. */
  async #try(work: Work, step: () => Promise<void>): Promise<void> {
    try {
      await step();
      this.#backoffs[work].reset();
    } catch (error) {
      this.#options.onError(error);
      await abortableDelay(this.#backoffs[work].nextMs(), this.#stopping.signal);
    }
  }

  async #find(): Promise<void> {
    // What this turn of the event loop brings belongs to the same look-up.
    await new Promise(setImmediate);
    const created = this.#lanes.drainCreated(LANES_PER_STATEMENT_MAX);
    const found = await this.#options.findAnswered(created).catch((error: unknown) => {
      this.#lanes.askAgainFor(created);
      throw error;
    });
    for (const lane of found) this.#lanes.setAnsweredBefore(lane);
    this.#lanes.settle(created);
    this.#options.onChanged();
  }

  async #prove(): Promise<void> {
    const resting = this.#lanes.rests.resting(LANES_PER_STATEMENT_MAX);
    const ended = await this.#options.findEndedRests(resting);
    for (const receiver of ended) this.#lanes.rests.endAll(receiver);
    if (ended.length > 0) this.#options.onChanged();
  }

  async #remember(): Promise<void> {
    await abortableDelay(REMEMBER_AFTER_MS, this.#stopping.signal);
    if (this.#unremembered.length === 0)
      this.#unremembered = this.#lanes.drainAnswered(LANES_PER_STATEMENT_MAX);
    // What fails stays for the next step: lost, these receivers would be silent ones after the next deploy.
    await this.#options.rememberAnswered(this.#unremembered);
    this.#unremembered = [];
  }

  async #takeBack(): Promise<void> {
    // What this turn of the event loop brings belongs to the same step.
    await new Promise(setImmediate);
    const overflows = this.#lanes.drainOverflow(OVERFLOWS_PER_STATEMENT_MAX);
    if (overflows.length === 0) return;
    try {
      const taken = await this.#options.takeBack(overflows);
      for (const [index, { deliveryIds, nextFromId }] of taken.entries())
        this.#lanes.refill(overflows[index]!, deliveryIds, nextFromId);
    } catch (error) {
      for (const overflow of overflows) this.#lanes.refill(overflow, [], overflow.fromId);
      throw error;
    }
    this.#options.onChanged();
  }
}
