// Turns in reading what receivers send: whose answers are costly to read keeps nobody else waiting.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { PassThrough } from "node:stream";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { guardReading, type Reader, ReadingTurns } from "../../../src/egress/connect/reading.ts";
import { patience } from "../../support/time-limits.ts";

const inAll = (turns: ReadingTurns) => ({ handshakes: turns, answers: turns });

/** Of this thread, up to now: Linux would tell it in steps of 4 ms. */
function threadMs(): number {
  process.cpuUsage();
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

/** Keeps this thread busy, however long that takes beside others. */
function work(ms: number): void {
  const untilMs = threadMs() + ms;
  while (threadMs() < untilMs);
}

describe("a handshake", () => {
  it("that takes long of our time is followed by a rest for all of its account's, in line", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "setImmediate", "performance"] });
    try {
      const turns = new ReadingTurns();
      const done: string[] = [];
      const take = (payer: string, name: string, ms: number) =>
        turns.take(payer, (finish) => {
          done.push(name);
          finish({ costlyMs: ms, isAll: true });
        });
      take("a", "costly", 100);
      take("a", "next", 0);
      const leave = take("a", "gone", 0);
      take("a", "behind", 50);
      take("a", "last", 0);
      take("b", "other", 0);
      leave();
      expect(done).toEqual(["costly", "other"]);
      await vi.advanceTimersByTimeAsync(1_999);
      expect(done).toEqual(["costly", "other"]);
      await vi.advanceTimersByTimeAsync(5);
      expect(done.slice(2), "a quick one lets the next through").toEqual(["next", "behind"]);
      await vi.advanceTimersByTimeAsync(990);
      expect(done.slice(4)).toEqual([]);
      await vi.advanceTimersByTimeAsync(20);
      take("a", "later", 0);
      expect(done.slice(4)).toEqual(["last", "later"]);
    } finally {
      vi.useRealTimers();
    }
  });

  it("that takes long leaves nine tenths of our time, however many accounts have such ones", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "setImmediate", "performance"] });
    try {
      for (const count of [2, 20, 200]) {
        const turns = new ReadingTurns();
        let takenMs = 0;
        // Each is one of its own.
        const costly = (): Reader => (finish) => {
          takenMs += 75;
          finish({ costlyMs: 75, isAll: true });
        };
        for (let n = 0; n < count; n++) for (let one = 0; one < 500; one++) turns.take(`${n}`, costly());
        const atOnceMs = takenMs;
        await vi.advanceTimersByTimeAsync(600_000);
        expect(atOnceMs, "each one's first").toBe(75 * count);
        expect((takenMs - atOnceMs) / 600_000, `${count}`).toBeLessThan(0.11);
        let isDone = false;
        turns.take("another", (finish) => {
          isDone = true;
          finish({ costlyMs: 0, isAll: true });
        });
        expect(isDone, "at once").toBe(true);
      }
    } finally {
      vi.useRealTimers();
    }
  });

  it("is worked on for as long as all else in a turn of the event loop, and accounts take turns", async () => {
    let nowMs = 0;
    const clock = vi.spyOn(performance, "now").mockImplementation(() => nowMs);
    try {
      const turns = new ReadingTurns(4);
      const done: string[] = [];
      const take = (payer: string, ms: number) =>
        turns.take(payer, (finish) => {
          nowMs += ms;
          done.push(payer);
          finish({ costlyMs: 0, isAll: true });
        });
      const turn = async (elseMs: number) => {
        nowMs += elseMs;
        await new Promise((resolve) => setImmediate(resolve));
        return done.splice(0).join("");
      };
      for (const payer of ["a", "a", "a", "b", "c", "a", "a", "a", "a", "d", "a"]) take(payer, 3);
      expect(await turn(0), "two at once, and two").toBe("aaab");
      expect(await turn(0)).toBe("cd");
      expect(await turn(9), "a busy thread").toBe("aaa");
      expect(await turn(3)).toBe("aa");
      for (const payer of ["a", "b", "c", "d"]) take(payer, 0);
      expect(await turn(0), "at once, as they are quick").toBe("abcd");
    } finally {
      clock.mockRestore();
    }
  });

  it("that fails is charged, however short it was", async () => {
    const turns = new ReadingTurns();
    for (let n = 0; n < 10; n++) {
      const socket = new PassThrough();
      const { stream, failed } = guardReading(socket as unknown as Socket, { ...inAll(turns), payer: "a" });
      stream.on("data", () => {
        work(6);
      });
      socket.emit("data", Buffer.alloc(1));
      await new Promise((resolve) => setImmediate(resolve));
      failed();
    }
    let isRead = false;
    const leave = turns.take("a", () => {
      isRead = true;
    });
    expect(isRead).toBe(false);
    leave();
    turns.take("b", () => {
      isRead = true;
    });
    expect(isRead).toBe(true);
  });
});

describe("what comes after a handshake", () => {
  /** Connections on which all bytes have come, with a reader that takes so many ms for each slice. */
  function openAll(
    turns: ReadingTurns,
    payers: readonly string[],
    { bytes, sliceMs }: { bytes: number; sliceMs: number },
  ) {
    const taken = new Map(payers.map((payer) => [payer, 0]));
    for (const payer of payers) {
      const socket = new PassThrough();
      const { stream, allow } = guardReading(socket as unknown as Socket, { ...inAll(turns), payer });
      allow(Number.POSITIVE_INFINITY, payer);
      stream.on("data", (slice: Buffer) => {
        const untilMs = threadMs() + sliceMs;
        while (threadMs() < untilMs);
        taken.set(payer, taken.get(payer)! + slice.length);
      });
      // Each in a callback of its own, as the sockets of a poll are.
      setImmediate(() => socket.emit("data", Buffer.alloc(bytes)));
    }
    return taken;
  }

  it("is read in slices, so that a wave of costly records holds the thread for a moment only", async () => {
    const turns = new ReadingTurns();
    const payers = Array.from({ length: 64 }, (_, n) => `${n % 2}`);
    const startedAtMs = threadMs();
    const taken = openAll(turns, payers, { bytes: 65_536, sliceMs: 8 });
    await new Promise((resolve) => setImmediate(resolve));
    expect(threadMs() - startedAtMs).toBeLessThan(100);
    for (const bytes of taken.values()) expect([8_192, 16_384, 24_576], "of 32 × 65,536").toContain(bytes);
  });

  it("is read whole where it is quick, and at once", async () => {
    const taken = openAll(new ReadingTurns(), ["a", "a", "a"], { bytes: 65_536, sliceMs: 0 });
    await new Promise((resolve) => setImmediate(resolve));
    expect(taken.get("a")).toBe(3 * 65_536);
  });

  it.each([
    ["costly", 0.8, 300, 500],
    ["usual", 0.1, 0, 50],
  ])("is %s by what the thread worked for it, however short that is", async (_, ms, least, most) => {
    const costsMs: number[] = [];
    const turns = new (class extends ReadingTurns {
      override take(_payer: string, read: Reader) {
        read(({ costlyMs }) => costsMs.push(costlyMs));
        return () => undefined;
      }
    })();
    const socket = new PassThrough();
    const { stream, allow } = guardReading(socket as unknown as Socket, { ...inAll(turns), payer: "a" });
    stream.on("data", () => {
      work(ms);
    });
    for (let n = 0; n < 500; n++) {
      allow(1_000, "a");
      socket.emit("data", Buffer.alloc(1));
      await new Promise((resolve) => setImmediate(resolve));
    }
    const { length } = costsMs.filter((costlyMs) => costlyMs > 0);
    expect(length).toBeGreaterThanOrEqual(least);
    expect(length).toBeLessThanOrEqual(most);
  });

  /** What was read and told of a receiver that sends and closes while the account of `opener` rests. */
  async function sentAndClosed(payer: string) {
    const server = createServer((socket) => socket.end("an answer"));
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    const turns = new ReadingTurns();
    turns.take("opener", (finish) => finish({ costlyMs: 25, isAll: true }));
    // As to an egress proxy, whose sockets read on while they are paused.
    const socket = connect({ port, host: "127.0.0.1" });
    const { stream, allow } = guardReading(socket, { ...inAll(turns), payer: "opener" });
    allow(1_000, payer);
    const events: string[] = [];
    const startedAtMs = performance.now();
    stream.on("data", (chunk: Buffer) => events.push(chunk.toString()));
    stream.resume();
    await new Promise<void>((resolve) => stream.on("end", resolve));
    const ms = performance.now() - startedAtMs;
    socket.destroy();
    server.close();
    return { events, ms };
  }

  it("is handed on in its turn, and its end behind it, though the receiver has closed meanwhile", async () => {
    const { events, ms } = await sentAndClosed("opener");
    expect(events).toEqual(["an answer"]);
    expect(ms).toBeGreaterThan(450);
  });

  it("is read in the turn of whom the POST is for, whoever opened the connection", async () => {
    const { events, ms } = await sentAndClosed("another");
    expect(events).toEqual(["an answer"]);
    expect(ms).toBeLessThan(patience(400));
  });

  it("ends behind its last slice, whenever the end is told", async () => {
    const turns = new ReadingTurns();
    const socket = new PassThrough();
    const { stream, allow } = guardReading(socket as unknown as Socket, { ...inAll(turns), payer: "a" });
    allow(100_000, "a");
    const events: (number | string)[] = [];
    stream.on("data", ({ length }: Buffer) => events.push(length));
    stream.on("end", () => events.push("end"));
    socket.emit("data", Buffer.alloc(20_000));
    socket.emit("end");
    await new Promise((resolve) => setImmediate(resolve));
    expect(events).toEqual([8_192, 8_192, 3_616, "end"]);
  });

  it("is no answer if nobody has asked yet", () => {
    const turns = new ReadingTurns();
    turns.take("a", (finish) => finish({ costlyMs: 25, isAll: true }));
    const socket = new PassThrough();
    const { allow } = guardReading(socket as unknown as Socket, { ...inAll(turns), payer: "a" });
    expect(allow(1_000, "a")).toBe(true);
    socket.emit("data", Buffer.from("HTTP/1.1 408 Request Timeout\r\n\r\n"));
    expect(allow(1_000, "a")).toBe(false);
  });

  /** Returns how long reading took of a minute, in milliseconds. Every 100 ms each account is sent `reads` as often. */
  async function readForAMinute(
    payers: readonly string[],
    { times, reads }: { times: number; reads: readonly Parameters<Parameters<Reader>[0]>[0][] },
    turns = new ReadingTurns(),
  ): Promise<number> {
    let takenMs = 0;
    const answers = reads.map(
      (read) => (): Reader => (finish) => {
        takenMs += read.costlyMs;
        finish(read);
      },
    );
    for (let ms = 0; ms < 60_000; ms += 100) {
      for (const payer of payers)
        for (let n = 0; n < times; n++) for (const answer of answers) turns.take(payer, answer());
      await vi.advanceTimersByTimeAsync(100);
    }
    return takenMs;
  }

  describe("when answers are costly", () => {
    beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "setImmediate", "performance"] }));
    afterEach(() => void vi.useRealTimers());
    const quick = { costlyMs: 0, isAll: true };
    const costly = { costlyMs: 1.5, isAll: true };
    const named = (count: number) => Array.from({ length: count }, (_, n) => `${n}`);

    it.each([1, 2, 20, 60])("is a tenth of the thread's, of %i accounts", async (count) => {
      const takenMs = await readForAMinute(named(count), { times: 20, reads: [quick, costly] });
      expect(takenMs / 60_000).toBeLessThan(0.11);
      expect(takenMs, "and they are read").toBeGreaterThan(500);
    });

    const times = <One>(count: number, one: One): One[] => Array.from({ length: count }, () => one);
    it.each([
      ["in many pieces of which few are costly", times(20, [...times(20, quick), costly]).flat()],
      [
        "with all their beginnings before the rest",
        [...times(20, quick), ...times(20, costly), ...times(40, costly)],
      ],
    ])("is no more when they come %s", async (_, reads) => {
      expect((await readForAMinute(named(20), { times: 1, reads })) / 60_000).toBeLessThan(0.11);
    });

    it("never waits where an account has few of many, whatever others have", async () => {
      const turns = new ReadingTurns();
      const others = readForAMinute(named(20), { times: 20, reads: [quick, costly] }, turns);
      let waitedCount = 0;
      for (let n = 0; n < 500; n++) {
        await vi.advanceTimersByTimeAsync(100);
        for (let answer = 0; answer < 10; answer++) turns.countUsual("busy");
        let isRead = false;
        turns.take("busy", (finish) => {
          isRead = true;
          finish(costly);
        });
        if (!isRead) waitedCount += 1;
      }
      expect(waitedCount).toBe(0);
      await vi.advanceTimersByTimeAsync(60_000);
      await others;
    });
  });
});
