// The recorder alone: many results at once, in two parts, of which the database refuses some.
import pg from "pg";
import type { Recording } from "../../src/delivery/record-sql.ts";
import { createRecorder, type Recorded } from "../../src/delivery/recorder.ts";
import type { Schedule } from "./schedule.ts";

const RESULTS_MAX = 60;
const LEASE_MS = 20_000;
const PARTS = ["today", "yesterday"];
/** What the database refuses; `never`: without the receiver's text, too. */
const REFUSED = { text: "\0", never: "\0 always" };

type Result = Recording & {
  readonly part: string;
  readonly refused: keyof typeof REFUSED | null;
  readonly giveUpAtMs: number;
  /** How often the database has taken it, and whether that was told. */
  taken: number;
  isTold: boolean;
  recorded: Recorded | null;
};

export class RecordingWorld {
  readonly #schedule: Schedule;
  readonly #results = new Map<string, Result>();
  readonly #recorder;
  #begun = 0;
  #isWriting = false;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    this.#recorder = createRecorder({
      write: (recordings) => this.#write(recordings),
      partOf: ({ deliveryId }) => this.#results.get(deliveryId)!.part,
      onError: () => undefined,
      random: () => schedule.chance.next(),
    });
  }

  /** @throws Error at the first violation */
  async play(): Promise<void> {
    const { chance } = this.#schedule;
    const count = chance.between(1, chance.pick([4, RESULTS_MAX]));
    for (let n = 0; n < count; n++) {
      // Some together, as a claim's attempts often end.
      const together = chance.between(1, 4);
      const ids = Array.from({ length: together }, (_, nth) => `${n}.${nth}`);
      this.#schedule.turn(`record ${ids}`).then(() => {
        for (const id of ids) this.#record(id);
      });
      n += together - 1;
      this.#expected += together;
    }
    const describe = () => `${this.#recorder.backlog} unrecorded of ${this.#begun}`;
    const isOver = () => this.#begun === this.#expected && this.#recorder.backlog === 0;
    await this.#schedule.play(isOver, () => this.#look(), describe);
    for (const result of this.#results.values()) this.#expectRight(result);
    await this.#schedule.play(
      () => this.#schedule.isIdle,
      () => this.#look(),
      describe,
    );
  }

  #expected = 0;

  #record(deliveryId: string): void {
    const { chance, time } = this.#schedule;
    this.#begun++;
    const refused = chance.isTrue(0.06) ? chance.pick(["text", "never"] as const) : null;
    const attempt = { responseExcerpt: refused === null ? "" : REFUSED[refused], errorCode: "status_503" };
    const result: Result = {
      deliveryId,
      leaseToken: "token",
      run: 1,
      // As far as a recorder looks at it.
      attempt: chance.isTrue(0.8) || refused !== null ? (attempt as Recording["attempt"]) : null,
      next: { status: "failed", dueAtMs: refused === "never" ? -1 : 0 },
      part: chance.pick(PARTS),
      refused,
      giveUpAtMs: time.nowMs + (chance.isTrue(0.1) ? chance.between(-1, 500) : LEASE_MS),
      taken: 0,
      isTold: false,
      recorded: null,
    };
    this.#results.set(deliveryId, result);
    this.#recorder.record(result, result.giveUpAtMs).then((recorded) => {
      this.#expect(result.recorded === null, `${deliveryId} was settled twice`);
      result.recorded = recorded;
    });
  }

  async #write(recordings: readonly Recording[]): Promise<ReadonlySet<string>> {
    const { chance, time } = this.#schedule;
    this.#expect(!this.#isWriting, "two writes at once");
    this.#expect(recordings.length > 0, "a write of nothing");
    this.#isWriting = true;
    const results = recordings.map(({ deliveryId }) => this.#results.get(deliveryId)!);
    this.#expect(new Set(results.map(({ part }) => part)).size === 1, "two parts in one write");
    for (const result of results) {
      this.#expect(result.giveUpAtMs > time.nowMs, `${result.deliveryId} is written when its lease is over`);
      this.#expect(!result.isTold && result.recorded === null, `${result.deliveryId} is written again`);
    }
    try {
      await this.#schedule.turn(`write ${recordings.length}`);
      if (chance.isTrue(0.1)) throw new Error("the connection was cut");
      if (recordings.some(isRefused)) throw new Refused();
      const ours = results.filter(({ taken }) => taken === 0);
      for (const result of results) result.taken++;
      await this.#schedule.turn("written");
      if (chance.isTrue(0.1)) throw new Error("the connection was cut");
      for (const result of results) result.isTold = true;
      return new Set(ours.map(({ deliveryId }) => deliveryId));
    } finally {
      this.#isWriting = false;
    }
  }

  #look(): void {
    const settled = [...this.#results.values()].filter(({ recorded }) => recorded !== null).length;
    const { backlog } = this.#recorder;
    this.#expect(
      backlog === this.#begun - settled,
      `a backlog of ${backlog}: ${this.#begun} less ${settled}`,
    );
  }

  /** What was told is so; the faults of one are no other's. */
  #expectRight({ deliveryId, recorded, taken, isTold, refused, giveUpAtMs }: Result): void {
    const told = `${deliveryId} is ${recorded}, taken ${taken} times`;
    this.#expect(recorded === "given_up" ? !isTold : isTold, told);
    this.#expect(recorded !== "ours" || taken === 1, told);
    this.#expect(recorded !== "taken_over" || taken > 1, told);
    const mayGiveUp = refused === "never" || giveUpAtMs <= this.#schedule.time.nowMs;
    this.#expect(recorded !== "given_up" || mayGiveUp, told);
  }

  #expect(isSo: boolean, otherwise: string): void {
    this.#schedule.expect(isSo, () => otherwise);
  }
}

function isRefused({ attempt, next }: Recording): boolean {
  const isAlways = next.status === "failed" && next.dueAtMs < 0;
  return isAlways || attempt?.responseExcerpt === REFUSED.text;
}

class Refused extends pg.DatabaseError {
  constructor() {
    super("the database refuses", 0, "error");
    this.code = "22P05";
  }
}
