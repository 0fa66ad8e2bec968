import {
  LANE_LIMITS,
  type LaneAnswer,
  type LaneLimits,
  type TakenDelivery,
} from "../../src/delivery/lane.ts";
import { Lanes } from "../../src/delivery/lanes.ts";

const LIMITS: LaneLimits = {
  ...LANE_LIMITS,
  inFlightMax: 1_000,
  silentInFlightMax: 250,
  laneInFlightMax: 128,
};
export const ANSWERED: LaneAnswer = { kind: "answered", firstByteMs: null };
export const SILENT: LaneAnswer = { kind: "silent" };
export const UNKNOWN: LaneAnswer = { kind: "unknown" };

/** Lanes are named `account/lane`; what is in flight is kept, to be ended by name. */
export class LanesBench {
  readonly lanes: Lanes;
  readonly taken: TakenDelivery[] = [];

  constructor(limits: Partial<LaneLimits> = {}) {
    this.lanes = new Lanes({ ...LIMITS, ...limits });
  }

  fill(name: string, count: number, from = 0): boolean[] {
    return Array.from({ length: count }, (_, n) => this.lanes.add(waiting(name, `${name}#${pad(from + n)}`)));
  }

  take(max = 1_000): string[] {
    const taken = this.lanes.take(max);
    this.taken.push(...taken);
    return taken.map(({ deliveryId }) => deliveryId);
  }

  /** All that can start now, batch after batch. */
  takeAll(): string[] {
    const all: string[] = [];
    for (let batch = this.take(200); batch.length > 0; batch = this.take(200)) all.push(...batch);
    return all;
  }

  end(name: string, answer: LaneAnswer, count = 1): void {
    for (let n = 0; n < count; n++) {
      const index = this.taken.findIndex((one) => `${one.accountId}/${one.lane}` === name);
      const [taken] = this.taken.splice(index, 1);
      this.lanes.release(taken!, answer);
    }
  }

  /** A receiver that has answered so often, with nothing waiting or in flight. */
  answering(name: string, answers = 1): void {
    for (let n = 0; n < answers; n++) {
      this.fill(name, 1, 1_000_000 + n);
      this.take(1);
      this.end(name, ANSWERED);
    }
  }

  /** Tries of the first lane, one by one, until so many ids wait. */
  drainTo(waitingIds: number): void {
    while (this.lanes.waitingIds > waitingIds) {
      this.take(1);
      this.end("a/1", UNKNOWN);
    }
  }

  inFlight(account: string): number {
    return this.taken.filter(({ accountId }) => accountId === account).length;
  }
}

const pad = (n: number) => String(n).padStart(8, "0");

function waiting(name: string, deliveryId: string) {
  const [accountId = "", lane = ""] = name.split("/");
  return { deliveryId, accountId, lane };
}

/** How many of the ids are of the account. */
export const by = (ids: readonly string[], account: string) =>
  ids.filter((id) => id.startsWith(`${account}/`)).length;
