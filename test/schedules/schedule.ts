// One order in which promises settle, turns of the event loop end and time passes, out of all that there could be.
import { syncBuiltinESMExports } from "node:module";
import timersPromises from "node:timers/promises";
import type { Scheduler } from "fast-check";
import { Chance } from "../simulation/chance.ts";

type Timer = {
  dueAtMs: number;
  readonly everyMs: number | null;
  readonly act: () => void;
};

const real = {
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setInterval: globalThis.setInterval,
  clearInterval: globalThis.clearInterval,
  setImmediate: globalThis.setImmediate,
  now: performance.now,
  delay: timersPromises.setTimeout,
};

const STEP_MS = 1_000;

/** Every promise that could go on has. */
const settled = () => new Promise<void>((resolve) => real.setImmediate(resolve));

/** What Node has of time, in its place until it is disposed of: it passes when a schedule says so, and only then. */
export class Time implements Disposable {
  nowMs = 0;
  readonly #timers = new Set<Timer>();
  /** What waits for the end of this turn of the event loop, in its order. */
  #immediates: (() => void)[] = [];

  constructor() {
    const delay = async (ms = 0, value?: unknown, { signal }: { signal?: AbortSignal } = {}) => {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      const timer = this.#set(() => resolve(value), ms, false);
      const end = () => reject(signal?.reason);
      if (signal?.aborted) end();
      signal?.addEventListener("abort", end, { once: true });
      try {
        return await promise;
      } finally {
        this.#timers.delete(timer);
        signal?.removeEventListener("abort", end);
      }
    };
    const clear = (timer: unknown) => void this.#timers.delete(timer as Timer);
    // As much of Node's as the code under test asks for.
    Object.assign(globalThis, {
      setTimeout: (act: () => void, ms: number) => this.#set(act, ms, false),
      setInterval: (act: () => void, ms: number) => this.#set(act, ms, true),
      setImmediate: (act: () => void) => void this.#immediates.push(act),
      clearTimeout: clear,
      clearInterval: clear,
    });
    performance.now = () => this.nowMs;
    Object.assign(timersPromises, { setTimeout: delay });
    syncBuiltinESMExports();
  }

  #set(act: () => void, ms: number, repeats: boolean): Timer {
    const timer = { dueAtMs: this.nowMs + Math.max(1, ms), everyMs: repeats ? ms : null, act };
    this.#timers.add(timer);
    return Object.assign(timer, { unref: () => timer });
  }

  get isWaitedFor(): boolean {
    return this.#timers.size > 0;
  }

  get hasTurn(): boolean {
    return this.#immediates.length > 0;
  }

  /** To the next timer, or a little on the way to it. */
  pass(): void {
    const [first, ...others] = this.#timers;
    if (first === undefined) return;
    const next = others.reduce((soonest, one) => (one.dueAtMs < soonest.dueAtMs ? one : soonest), first);
    this.nowMs = Math.min(Math.max(this.nowMs, next.dueAtMs), this.nowMs + STEP_MS);
    if (next.dueAtMs > this.nowMs) return;
    if (next.everyMs === null) this.#timers.delete(next);
    else next.dueAtMs += next.everyMs;
    next.act();
  }

  endTurn(): void {
    for (const act of this.#immediates.splice(0)) act();
  }

  /** For the next schedule. */
  reset(): void {
    this.nowMs = 0;
    this.#timers.clear();
    this.#immediates = [];
  }

  [Symbol.dispose](): void {
    const { now, delay, ...timers } = real;
    Object.assign(globalThis, timers);
    performance.now = now;
    Object.assign(timersPromises, { setTimeout: delay });
    syncBuiltinESMExports();
  }
}

const READY = Promise.resolve();

/** Everything ends long before. */
const STEPS_MAX = 20_000;

export class Schedule {
  readonly time: Time;
  /** For what is not an order: which delivery, which fault. */
  readonly chance: Chance;
  readonly #scheduler: Scheduler;
  readonly #violations: string[] = [];
  readonly #planned = new Set<string>();

  constructor(scheduler: Scheduler, time: Time, seed: number) {
    time.reset();
    this.time = time;
    this.chance = new Chance(seed);
    this.#scheduler = scheduler;
  }

  /** Resolves when it is its turn. */
  turn(label: string): Promise<void> {
    return this.#scheduler.schedule(READY, label);
  }

  /** Nothing is left to happen. */
  get isIdle(): boolean {
    return this.#scheduler.count() === 0 && !this.time.isWaitedFor && !this.time.hasTurn;
  }

  /** May be called where a throw would be taken for a fault of the database. */
  expect(isSo: boolean, otherwise: () => string): void {
    if (!isSo) this.#violations.push(otherwise());
  }

  /**
   * One thing after the other until it is over. @param look is called after each
   * @throws Error at the first violation, and when it never ends
   */
  async play(isOver: () => boolean, look: () => void, describe: () => string): Promise<void> {
    for (let steps = 0; ; steps++) {
      await settled();
      look();
      if (this.#violations.length > 0) throw new Error(this.#violations.join("\n"));
      if (isOver()) return;
      if (this.time.hasTurn) this.#plan("the turn ends", () => this.time.endTurn());
      if (this.time.isWaitedFor) this.#plan("time passes", () => this.time.pass());
      if (steps === STEPS_MAX || this.#scheduler.count() === 0)
        throw new Error(`it does not end: ${describe()}`);
      await this.#scheduler.waitNext(1);
    }
  }

  #plan(label: string, act: () => void): void {
    if (this.#planned.has(label)) return;
    this.#planned.add(label);
    void this.turn(label).then(() => {
      this.#planned.delete(label);
      act();
    });
  }
}
