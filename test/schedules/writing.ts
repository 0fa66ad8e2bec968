// Writes that share transactions: held locks, refusals and a database that goes, in any order.
import { LockWaitError } from "../../src/http/idempotent-write.ts";
import { WRITE_BYTES_IN_BATCH_MAX } from "../../src/http/limits.ts";
import { Problem, TemporarilyUnavailable } from "../../src/http/problems.ts";
import { FOR_EVER_MS, openBatches } from "../support/api-toy-batches.ts";
import type { Schedule } from "./schedule.ts";

const WRITES_MAX = 16;
const ACCOUNTS = ["a", "b", "c"];
const ITEMS = ["i", "j", "k", "l"];
const KEYS = ["1", "2"];
/** A batch of each of two queues; those that were not waited for; large ones and parts; those that meet locks. */
const PERFORMED_AT_ONCE_MAX = 2 + 3 + 3 + 2;

type Asked = {
  readonly item: string;
  /** Two with one name, or with one key, are never performed at once. */
  readonly names: readonly string[];
  readonly waitMs: number;
  readonly isKeyed: boolean;
  readonly startedAtMs: number;
  answer: string | null;
  error: unknown;
};

export class WritingWorld {
  readonly #schedule: Schedule;
  readonly #batches = openBatches();
  readonly #asked: Asked[] = [];
  /** Names of what is being performed. */
  readonly #performed = new Set<string>();
  #atOnce = 0;
  #isAway = false;
  #wasAway = false;
  #expected = 0;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    this.#batches.world.gate = (items) => this.#perform(items);
  }

  /** @throws Error at the first violation */
  async play(): Promise<void> {
    const { chance } = this.#schedule;
    this.#expected = chance.between(1, WRITES_MAX);
    for (let n = 0; n < this.#expected; n++) this.#schedule.turn("write").then(() => this.#write(n));
    for (let faults = chance.below(5); faults > 0; faults--) this.#disturb();
    await this.#playUntil(
      () => this.#asked.length === this.#expected && !this.#isDisturbed && this.#isAnswered,
    );
    for (const one of this.#asked) this.#expectRight(one);
    await this.#expectAllFree();
  }

  #write(n: number): void {
    const { chance, time } = this.#schedule;
    const account = chance.pick(ACCOUNTS);
    const name = `${account}-${chance.pick(ITEMS)}`;
    const key = chance.isTrue(0.3) ? chance.pick(KEYS) : null;
    // Repeats ask for the same; every other item is its own.
    const item = key === null ? `${name} ${n}` : `${name} key ${key}`;
    const isNamed = key !== null || chance.isTrue(0.8);
    const asked: Asked = {
      item,
      names: [...(isNamed ? [name] : []), ...(key === null ? [] : [`${account} key ${name} ${key}`])],
      waitMs: chance.isTrue(0.2) ? chance.between(1, 500) : FOR_EVER_MS,
      isKeyed: key !== null,
      startedAtMs: time.nowMs,
      answer: null,
      error: null,
    };
    this.#asked.push(asked);
    const bytes = chance.isTrue(0.15) ? WRITE_BYTES_IN_BATCH_MAX + 1 : 100;
    const keyed = key === null ? {} : { key: `${name} ${key}` };
    const options = { account, bytes, waitMs: asked.waitMs, name: isNamed ? name : null, ...keyed };
    this.#batches.add(item, options).then(
      (answer) => {
        asked.answer = answer;
      },
      (error: unknown) => {
        asked.error = error;
      },
    );
  }

  /** One item, or all of a name, cannot be written for a while. */
  #disturb(): void {
    const { chance } = this.#schedule;
    const { locked, poison, refused } = this.#batches;
    const kind = chance.pick(["lock", "poison", "refuse", "away"] as const);
    const n = chance.below(WRITES_MAX);
    this.#disturbances++;
    this.#schedule.turn(`${kind} ${n}`).then(async () => {
      const item = this.#asked[n]?.item ?? "none";
      if (kind === "lock") locked.add(item);
      if (kind === "poison") poison.set(item, new Error(`poison ${item}`));
      if (kind === "refuse") refused.add(item);
      if (kind === "away") this.#isAway = this.#wasAway = true;
      await this.#schedule.turn(`${kind} ${n} is over`);
      this.#disturbances--;
      if (kind === "lock") locked.delete(item);
      if (kind === "poison") poison.delete(item);
      if (kind === "refuse") refused.delete(item);
      if (kind === "away") this.#isAway = false;
    });
  }

  #disturbances = 0;

  get #isDisturbed(): boolean {
    return this.#disturbances > 0;
  }

  get #isAnswered(): boolean {
    return this.#asked.every(({ answer, error }) => answer !== null || error !== null);
  }

  async #perform(items: readonly string[]): Promise<void> {
    this.#atOnce++;
    this.#expect(this.#atOnce <= PERFORMED_AT_ONCE_MAX, `${this.#atOnce} transactions at once`);
    const names = items.flatMap((item) => this.#asked.find((one) => one.item === item)?.names ?? []);
    for (const name of names) {
      this.#expect(!this.#performed.has(name), `two of ${name} are performed at once`);
      this.#performed.add(name);
    }
    await this.#schedule.turn(`perform ${items}`);
    for (const name of names) this.#performed.delete(name);
    this.#atOnce--;
    if (this.#isAway) throw new TemporarilyUnavailable("away");
  }

  /** Everyone has an answer of their own, or a reason of their own. */
  #expectRight({ item, answer, error, waitMs, isKeyed }: Asked): void {
    const times = this.#batches.effects.filter((one) => one === item).length;
    this.#expect(times <= 1, `${item} took effect ${times} times`);
    if (answer !== null) {
      this.#expect(answer === item || (isKeyed && answer === `again ${item}`), `${item} was told ${answer}`);
      this.#expect(times === 1, `${item} was acknowledged, and took effect ${times} times`);
    } else if (error instanceof TemporarilyUnavailable)
      this.#expect(this.#wasAway || waitMs < FOR_EVER_MS, `${item} was told ${error}`);
    else if (error instanceof Problem)
      this.#expect(
        error.code === "box_sealed" || (isKeyed && error.code === "idempotency_in_progress"),
        `${item} was told ${error.code}`,
      );
    else this.#expect(String(error) === `Error: poison ${item}`, `${item} was told ${error}`);
    this.#expect(!(error instanceof LockWaitError), `${item} was told of a lock`);
  }

  /** Nothing is held, nobody is left: another write of each name is answered at once. */
  async #expectAllFree(): Promise<void> {
    const answers: string[] = [];
    for (const account of ACCOUNTS)
      for (const item of ITEMS)
        this.#batches.add(`${account}-${item} last`, { account, name: `${account}-${item}` }).then(
          (answer) => answers.push(answer),
          (error) => this.#expect(false, `the last write was told ${error}`),
        );
    await this.#playUntil(() => answers.length === ACCOUNTS.length * ITEMS.length);
    this.#expect(this.#atOnce === 0, "somebody still performs");
  }

  async #playUntil(isOver: () => boolean): Promise<void> {
    const describe = () =>
      JSON.stringify(this.#asked.filter(({ answer, error }) => answer === null && error === null));
    await this.#schedule.play(isOver, () => undefined, describe);
  }

  #expect(isSo: boolean, otherwise: string): void {
    this.#schedule.expect(isSo, () => otherwise);
  }
}
