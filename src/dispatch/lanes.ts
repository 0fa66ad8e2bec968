/**
 * Who may start next: a fair queue in memory. Ids of due deliveries wait here, each in its lane (one receiver of one
 * account), and lanes take turns. A lane that is full, or whose receiver is silent, holds up nobody else.
 *
 * The truth is in the database: an id that is dropped here, or lost with the process, is a row that stays due, and the
 * promoter wakes it again.
 */
export type WaitingDelivery = { readonly deliveryId: string; readonly lane: string };

export type LaneLimits = {
  /** Attempts in flight in this process, all lanes together. */
  readonly inFlightMax: number;
  /** Of those, how many may go to receivers whose last attempt got no answer. */
  readonly silentInFlightMax: number;
  /** Attempts in flight in one lane whose receiver answers. */
  readonly laneInFlightMax: number;
  /** Ids that every lane whose receiver answers may hold, whatever the others do, … */
  readonly laneIdsMin: number;
  /** … every lane whose receiver is silent, … */
  readonly silentLaneIdsMin: number;
  /** … and each at most, as long as all lanes together hold fewer than `idsMax`. */
  readonly laneIdsMax: number;
  readonly idsMax: number;
  /** Idle lanes kept with their limit. */
  readonly idleLanesMax: number;
};

/**
 * A lane's attempts in flight bound how many of its rows one claim or one record can cover, so 16 takes fewer
 * statements per delivery than 8 did (figures: test/bench/README.md).
 */
export const LANE_LIMITS: Omit<LaneLimits, "inFlightMax" | "silentInFlightMax"> = {
  laneInFlightMax: 16,
  laneIdsMin: 100,
  // One in flight and the next; the promoter is back before there is time for more. A hundred for each of 100,000 dead
  // receivers would be gigabytes.
  silentLaneIdsMin: 2,
  laneIdsMax: 1_000,
  idsMax: 100_000,
  idleLanesMax: 20_000,
};

/** The limit of a lane whose receiver has not answered yet. */
const FIRST_IN_FLIGHT = 2;

type Lane = {
  readonly key: string;
  readonly ids: Set<string>;
  inFlight: number;
  /** Additive increase with each answer, halved by each silence: a dead receiver is soon at one. */
  limit: number;
  isSilent: boolean;
  isInRing: boolean;
};

export class Lanes {
  readonly #limits: LaneLimits;
  readonly #lanes = new Map<string, Lane>();
  /** Idle lanes, the longest idle first. */
  readonly #idle = new Set<Lane>();
  /** Lanes that can start something now, in the order of their turns. */
  readonly #ready: Ring = new Ring();
  readonly #silentReady: Ring = new Ring();
  #ids = 0;
  #inFlight = 0;
  #silentInFlight = 0;

  constructor(limits: LaneLimits) {
    this.#limits = limits;
  }

  /** Attempts in flight (claimed or about to be). */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Ids that could start at once if the process had room: the measure for backpressure on wake-ups. */
  get startableIds(): number {
    return this.#ready.ids;
  }

  /** Ids held, startable or not. */
  get waitingIds(): number {
    return this.#ids;
  }

  /** Lanes that have ids waiting but are at their limit. */
  get heldLanes(): number {
    let held = 0;
    for (const lane of this.#lanes.values()) if (lane.ids.size > 0 && lane.inFlight >= lane.limit) held++;
    return held;
  }

  /** Lanes whose receiver did not answer last time. */
  get silentLanes(): number {
    let silent = 0;
    for (const lane of this.#lanes.values()) if (lane.isSilent) silent++;
    return silent;
  }

  /** False: dropped, because the lane or the process is full. Its row stays due. */
  add(waiting: WaitingDelivery): boolean {
    const lane = this.#laneOf(waiting.lane);
    if (lane.ids.has(waiting.deliveryId)) return true;
    const size = lane.ids.size;
    const hasRoom =
      size < this.#idsMinOf(lane) || (size < this.#limits.laneIdsMax && this.#ids < this.#limits.idsMax);
    if (!hasRoom) return false;
    lane.ids.add(waiting.deliveryId);
    this.#idle.delete(lane);
    this.#ids++;
    if (lane.isInRing) this.#ringOf(lane).ids++;
    this.#queue(lane);
    return true;
  }

  /** Up to `max` deliveries, one lane after the other; each counts as in flight until it is released. */
  take(max: number): WaitingDelivery[] {
    const taken: WaitingDelivery[] = [];
    const room = Math.min(max, this.#limits.inFlightMax - this.#inFlight);
    // Silent lanes have a budget of their own, and at most half of a batch.
    const silentRoom = Math.min(this.#limits.silentInFlightMax - this.#silentInFlight, Math.ceil(room / 2));
    this.#takeFrom(this.#silentReady, silentRoom, taken);
    this.#takeFrom(this.#ready, room - taken.length, taken);
    return taken;
  }

  /** Removes and returns every id that waits. */
  clear(): string[] {
    const waiting = [...this.#lanes.values()].flatMap((lane) => [...lane.ids]);
    for (const lane of this.#lanes.values()) {
      if (lane.isInRing) this.#ringOf(lane).remove(lane);
      lane.isInRing = false;
      lane.ids.clear();
    }
    this.#ids = 0;
    return waiting;
  }

  /** The attempt has ended. `answer`: did the receiver answer at all; "unknown" when nothing was posted. */
  release(key: string, answer: "answered" | "silent" | "unknown"): void {
    const lane = this.#laneOf(key);
    lane.inFlight--;
    this.#inFlight--;
    if (lane.isSilent) this.#silentInFlight--;
    if (answer !== "unknown") this.#learn(lane, answer === "silent");
    if (lane.isSilent && this.#ids > this.#limits.idsMax) this.#forgetNewest(lane);
    this.#queue(lane);
    if (lane.inFlight === 0 && lane.ids.size === 0) this.#rest(lane);
  }

  #takeFrom(ring: Ring, room: number, taken: WaitingDelivery[]): void {
    for (let left = room; left > 0; left--) {
      const lane = ring.shift();
      if (lane === undefined) return;
      lane.isInRing = false;
      const deliveryId = lane.ids.values().next().value!;
      lane.ids.delete(deliveryId);
      this.#ids--;
      lane.inFlight++;
      this.#inFlight++;
      if (lane.isSilent) this.#silentInFlight++;
      taken.push({ deliveryId, lane: lane.key });
      this.#queue(lane);
    }
  }

  #learn(lane: Lane, isSilent: boolean): void {
    lane.limit = isSilent
      ? Math.max(1, Math.floor(lane.limit / 2))
      : Math.min(this.#limits.laneInFlightMax, lane.limit + 1);
    const changesSides = lane.isSilent !== isSilent;
    // The limit fell below what is in flight, or the lane changed rings: it loses its coming turn.
    if (lane.isInRing && (changesSides || lane.inFlight >= lane.limit)) {
      this.#ringOf(lane).remove(lane);
      lane.isInRing = false;
    }
    if (!changesSides) return;
    this.#silentInFlight += isSilent ? lane.inFlight : -lane.inFlight;
    lane.isSilent = isSilent;
  }

  #idsMinOf(lane: Lane): number {
    return lane.isSilent ? this.#limits.silentLaneIdsMin : this.#limits.laneIdsMin;
  }

  /** What a lane held while its receiver answered is too much now that it does not. */
  #forgetNewest(lane: Lane): void {
    const forgotten = [...lane.ids].slice(this.#limits.silentLaneIdsMin);
    for (const id of forgotten) lane.ids.delete(id);
    this.#ids -= forgotten.length;
    if (lane.isInRing) this.#ringOf(lane).ids -= forgotten.length;
  }

  #queue(lane: Lane): void {
    if (lane.isInRing || lane.ids.size === 0 || lane.inFlight >= lane.limit) return;
    lane.isInRing = true;
    this.#ringOf(lane).push(lane);
  }

  #ringOf(lane: Lane): Ring {
    return lane.isSilent ? this.#silentReady : this.#ready;
  }

  #laneOf(key: string): Lane {
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      const ids = new Set<string>();
      lane = { key, ids, inFlight: 0, limit: FIRST_IN_FLIGHT, isSilent: false, isInRing: false };
      this.#lanes.set(key, lane);
    }
    return lane;
  }

  /** Keeps the idle lane with its limit; beyond the maximum the longest idle one is dropped. */
  #rest(lane: Lane): void {
    this.#idle.add(lane);
    if (this.#idle.size <= this.#limits.idleLanesMax) return;
    const [oldest] = this.#idle;
    if (oldest === undefined) return;
    this.#idle.delete(oldest);
    this.#lanes.delete(oldest.key);
  }
}

/** Lanes in the order of their turns. A Set keeps that order and takes a lane out of the middle at no cost. */
class Ring {
  readonly #lanes = new Set<Lane>();
  /** Ids waiting in the lanes of this ring. */
  ids = 0;

  push(lane: Lane): void {
    this.#lanes.add(lane);
    this.ids += lane.ids.size;
  }

  shift(): Lane | undefined {
    const lane = this.#lanes.values().next().value;
    if (lane !== undefined) this.remove(lane);
    return lane;
  }

  remove(lane: Lane): void {
    if (this.#lanes.delete(lane)) this.ids -= lane.ids.size;
  }
}
