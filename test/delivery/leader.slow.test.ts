import { EventEmitter, on, once } from "node:events";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type LeaderOptions, startLeader as start, sweepMs } from "../../src/delivery/leader.ts";
import { lead } from "../../src/delivery/promote-sql.ts";
import { countRows, deleteRows } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { patience, patientSignal, watchLateness } from "../support/time-limits.ts";

const database = await openDatabase();
const stops: (() => Promise<void>)[] = [];

beforeEach(() => deleteRows(database.pool, "leader"));
afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

/** As long as the machine made the last lease: it may be quicker by the time that this is over. */
let leasedForMs = 0;

/** A leader on the real lease, with work that only tells that it was called. */
function startLeader(options: Partial<LeaderOptions> = {}) {
  const events = new EventEmitter();
  const errors: [string, unknown][] = [];
  const tell = (work: string) => async () => {
    events.emit(work);
    return 0;
  };
  const stop = start({
    sweepMs: 20,
    lead: async (holder, leaseMs) => {
      leasedForMs = patience(leaseMs);
      return { ...(await lead(database.pool, holder, leasedForMs)), isDue: true, isPaced: true };
    },
    promote: async () => {
      events.emit("promote");
      return { woken: 0, isFull: false };
    },
    advanceReplays: tell("advance_replays"),
    advanceHolds: tell("advance_holds"),
    wakeProven: async () => void events.emit("wake_proven"),
    sweepJobs: tell("sweep_jobs"),
    countActivity: async () => void events.emit("count_activity"),
    forget: async () => void events.emit("forget"),
    keepHouse: async () => void events.emit("keep_house"),
    onError: (work, error) => {
      errors.push([work, error]);
      events.emit("error in work", work);
    },
    ...options,
  });
  stops.push(stop);
  return { stop, events, errors };
}

const soon = () => ({ signal: patientSignal(5_000) });

const BUSY = { leads: true, isDue: true, isPaced: true };

describe("how often the leader looks", () => {
  it("is every second, or in proportion to a compressed window", () => {
    expect(sweepMs(86_400_000)).toBe(1_000);
    expect(sweepMs(100_000)).toBe(1_000);
    expect(sweepMs(99_900)).toBe(999);
    expect(sweepMs(6_000)).toBe(60);
    expect(sweepMs(1)).toBe(50);
  });
});

describe("of several leaders", () => {
  it("one works, and another takes over within the lease when it stops", async () => {
    const first = startLeader();
    await once(first.events, "promote", soon());
    const second = startLeader();
    let secondPromoted = 0;
    second.events.on("promote", () => secondPromoted++);
    for (let n = 0; n < 5; n++) await once(first.events, "promote", soon());
    expect(secondPromoted).toBe(0);
    const latenessMs = watchLateness();
    const stoppedAt = performance.now();
    const leftMs = leasedForMs;
    await first.stop();
    await once(second.events, "promote", { signal: AbortSignal.timeout(leftMs + patience(5_000)) });
    expect(performance.now() - stoppedAt).toBeLessThan(leftMs + patience(500) + latenessMs());
  });

  it("one that hangs in its work loses the lead to another", async () => {
    const hanging = Promise.withResolvers<never>();
    const first = startLeader({ promote: () => hanging.promise });
    await expect.poll(() => countRows(database.pool, "leader")).toBe(1);
    const second = startLeader();
    await once(second.events, "promote", soon());
    hanging.reject(new Error("the connection was cut"));
    await once(first.events, "error in work", soon());
    expect(first.errors).toEqual([["promote", new Error("the connection was cut")]]);
  });
});

describe("a leader's work", () => {
  it("goes on after a failure of any of it", async () => {
    let calls = 0;
    const { events, errors } = startLeader({
      lead: async () => {
        if (++calls === 1) throw new Error("no connection");
        return BUSY;
      },
      advanceReplays: async () => {
        throw new Error("refused");
      },
    });
    await once(events, "promote", soon());
    await once(events, "promote", soon());
    expect(errors.map(([work]) => work).slice(0, 2)).toEqual(["lead", "advance_replays"]);
  });

  it("promotes on and on while there is more than a step takes", async () => {
    let steps = 0;
    const { events } = startLeader({
      sweepMs: 600_000,
      promote: async () => ({ woken: 10, isFull: ++steps < 5 }),
    });
    await once(events, "advance_replays", soon());
    expect(steps).toBe(5);
  });

  it("does not promote for ever: after a second the lead is asked for again", async () => {
    let asked = 0;
    const leads = new EventEmitter();
    startLeader({
      lead: async () => {
        leads.emit("asked", ++asked);
        return BUSY;
      },
      promote: async () => {
        await new Promise((resolve) => setImmediate(resolve));
        return { woken: 10, isFull: true };
      },
    });
    for await (const [nth] of on(leads, "asked", soon())) if (nth === 2) break;
  });

  it("takes several steps of the replays in a sweep, as long as there is something to do", async () => {
    let promoted = 0;
    let steps = 0;
    const { events } = startLeader({ sweepMs: 5_000, advanceReplays: async () => ++steps });
    events.on("promote", () => promoted++);
    await expect.poll(() => steps, { timeout: patience(4_000) }).toBe(2);
    expect(promoted).toBe(1);
  });

  it("is not held up by a slow step of the replays, of which there is one at a time", async () => {
    let steps = 0;
    const { promise, resolve } = Promise.withResolvers<number>();
    const { stop, events } = startLeader({
      advanceReplays: () => {
        steps++;
        return promise;
      },
    });
    for (let n = 0; n < 5; n++) await once(events, "promote", soon());
    expect(steps).toBe(1);
    const stopped = stop();
    resolve(0);
    await stopped;
    expect(steps).toBe(1);
  });

  it("counts activity beside the promoting and the house, again and again", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { events } = startLeader({ sweepMs: 5, keepHouse: () => promise });
    for (let n = 0; n < 3; n++) await once(events, "count_activity", soon());
    resolve();
  });

  it("keeps house beside the promoting, one at a time, and cuts it short when it stops", async () => {
    let houses = 0;
    let signal: AbortSignal | undefined;
    const { stop, events } = startLeader({
      keepHouseEveryMs: 0,
      keepHouse: (given) => {
        houses++;
        signal = given;
        return new Promise((resolve) => given.addEventListener("abort", () => resolve()));
      },
    });
    for (let n = 0; n < 5; n++) await once(events, "promote", soon());
    expect(houses).toBe(1);
    expect(signal?.aborted).toBe(false);
    await stop();
    expect(signal?.aborted).toBe(true);
  });

  it("sweeps stuck wake-ups when it begins to lead, and then once a minute", async () => {
    const { events } = startLeader();
    let swept = 0;
    events.on("sweep_jobs", () => swept++);
    for (let n = 0; n < 4; n++) await once(events, "promote", soon());
    expect(swept).toBe(1);
  });

  it("ends within a step when it is asked to", async () => {
    const { stop, events } = startLeader({ sweepMs: 600_000 });
    await once(events, "promote", soon());
    const latenessMs = watchLateness();
    const askedAt = performance.now();
    await stop();
    expect(performance.now() - askedAt).toBeLessThan(patience(500) + latenessMs());
  });
});
