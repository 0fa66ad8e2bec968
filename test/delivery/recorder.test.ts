import pg from "pg";
import { beforeEach, describe, expect, it } from "vitest";
import type { AttemptRow, Recording } from "../../src/delivery/record-sql.ts";
import { createRecorder, type Recorder } from "../../src/delivery/recorder.ts";
import { patience } from "../support/time-limits.ts";

const ATTEMPT: AttemptRow = {
  number: 1,
  startedAtMs: 1_000,
  endedAtMs: 1_100,
  dnsMs: null,
  connectMs: null,
  tlsMs: null,
  firstByteMs: 90,
  statusCode: 503,
  outcome: "rejected",
  errorCode: "status_503",
  targetUrl: "https://receiver.example.com/",
  remoteAddress: "192.0.2.1",
  responseHeaders: '{"server":"x"}',
  responseExcerpt: "busy",
};

function recording(deliveryId: string, attempt: Partial<AttemptRow> | null = {}): Recording {
  return {
    deliveryId,
    leaseToken: `token-${deliveryId}`,
    run: 1,
    attempt: attempt === null ? null : { ...ATTEMPT, ...attempt },
    next: { status: "failed", dueAtMs: 2_000 },
  };
}

class Refused extends pg.DatabaseError {
  override code = "22P05";

  constructor() {
    super("unsupported Unicode escape sequence", 0, "error");
  }
}

/** The database as far as a recorder sees it: it answers when and how the test says. */
class Database {
  readonly writes: (readonly Recording[])[] = [];
  atOnce = 0;
  atOnceMax = 0;
  answer: (batch: readonly Recording[], nth: number) => Promise<readonly string[]> = async (batch) =>
    ids(batch);
  readonly #begun = Promise.withResolvers<void>();

  /** Resolves when it is asked for the first time. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  readonly write = async (batch: readonly Recording[]): Promise<ReadonlySet<string>> => {
    this.writes.push(batch);
    this.#begun.resolve();
    this.atOnceMax = Math.max(this.atOnceMax, ++this.atOnce);
    try {
      return new Set(await this.answer(batch, this.writes.length));
    } finally {
      this.atOnce--;
    }
  };
}

const ids = (batch: readonly Recording[]) => batch.map((one) => one.deliveryId);
const inMs = (ms: number) => performance.now() + ms;

let database: Database;
let errors: unknown[];
let recorder: Recorder;

beforeEach(() => {
  database = new Database();
  errors = [];
  recorder = createRecorder({
    write: database.write,
    partOf: ({ deliveryId }) => deliveryId.split("/")[1] ?? "today",
    onError: (error) => errors.push(error),
    random: Math.random,
  });
});

const recordAll = (names: readonly string[], lifeMs = 60_000) =>
  names.map((name) => recorder.record(recording(name), inMs(lifeMs)));

it("writes the outcomes of two parts apart: one that fails does not take back what is written", async () => {
  let failuresLeft = 2;
  database.answer = async (batch) => {
    if (batch[0]?.deliveryId.endsWith("/yesterday") && failuresLeft-- > 0) throw new Error("no connection");
    return ids(batch);
  };
  const recorded = await Promise.all(recordAll(["a/today", "b/yesterday", "c/today"]));
  expect(recorded).toEqual(["ours", "ours", "ours"]);
  const [today, ...yesterday] = database.writes.map(ids);
  expect(today).toEqual(["a/today", "c/today"]);
  expect(yesterday).toEqual([["b/yesterday"], ["b/yesterday"], ["b/yesterday"]]);
});

describe("batches", () => {
  it("are what gathered in a moment, and then what gathered while the last one was written", async () => {
    const gate = Promise.withResolvers<void>();
    database.answer = async (batch, nth) => {
      if (nth === 1) await gate.promise;
      return ids(batch);
    };
    const first = recordAll(["a"]);
    await new Promise((resolve) => setImmediate(resolve));
    first.push(...recordAll(["b"]));
    await database.begun;
    const later = recordAll(["c"]);
    await new Promise((resolve) => setImmediate(resolve));
    later.push(...recordAll(["d"]));
    expect(recorder.backlog).toBe(4);
    gate.resolve();
    expect(await Promise.all([...first, ...later])).toEqual(["ours", "ours", "ours", "ours"]);
    expect(database.writes.map(ids)).toEqual([
      ["a", "b"],
      ["c", "d"],
    ]);
    expect(database.atOnceMax).toBe(1);
    expect(recorder.backlog).toBe(0);
  });

  it("have at most 200 outcomes", async () => {
    await Promise.all(recordAll(Array.from({ length: 450 }, (_, n) => `d${n}`)));
    expect(database.writes.map((batch) => batch.length)).toEqual([200, 200, 50]);
  });

  it("tell each whether its lease was still ours", async () => {
    database.answer = async (batch) => ids(batch).filter((id) => id !== "b");
    expect(await Promise.all(recordAll(["a", "b", "c"]))).toEqual(["ours", "taken_over", "ours"]);
  });
});

describe("while the database is away", () => {
  it("keeps what it has and writes it when the database is back, in order", async () => {
    database.answer = async (batch, nth) => {
      if (nth <= 2) throw new Error("connection refused");
      return ids(batch);
    };
    const first = recordAll(["a"]);
    await database.begun;
    const second = recordAll(["b"]);
    expect(await Promise.all([...first, ...second])).toEqual(["ours", "ours"]);
    expect(database.writes.map(ids)).toEqual([["a"], ["a"], ["a"], ["b"]]);
    expect(errors).toHaveLength(2);
  });

  it("gives each up when its lease ends, and the others not", async () => {
    const shortMs = patience(50);
    const ended = new Promise((resolve) => setTimeout(resolve, shortMs));
    database.answer = async (batch, nth) => {
      if (nth === 1) await ended;
      if (nth <= 2) throw new Error("connection refused");
      return ids(batch);
    };
    const short = recorder.record(recording("short"), inMs(shortMs));
    const long = recorder.record(recording("long"), inMs(60_000));
    expect(await short).toBe("given_up");
    expect(recorder.backlog).toBe(1);
    expect(await long).toBe("ours");
    expect(database.writes.map(ids)).toEqual([["short", "long"], ["long"], ["long"]]);
  });

  it("never writes an outcome whose lease is over", async () => {
    expect(await recorder.record(recording("late"), inMs(-1))).toBe("given_up");
    expect(database.writes).toEqual([]);
    expect(recorder.backlog).toBe(0);
  });
});

describe("data that the database refuses", () => {
  const refuse = (culprit: string) => {
    database.answer = async (batch) => {
      const found = batch.find((one) => one.deliveryId === culprit);
      if (found?.attempt?.responseExcerpt === "busy") throw new Refused();
      return ids(batch);
    };
  };

  it("is halved out: the neighbours are written, the culprit without the receiver's text", async () => {
    refuse("e");
    const names = ["a", "b", "c", "d", "e", "f", "g"];
    expect(await Promise.all(recordAll(names))).toEqual(names.map(() => "ours"));
    const lastWriteOf = (name: string) =>
      database.writes.flat().findLast((one) => one.deliveryId === name)?.attempt;
    expect(lastWriteOf("e")).toMatchObject({
      outcome: "rejected",
      statusCode: 503,
      errorCode: "unrecordable_answer",
      responseHeaders: null,
      responseExcerpt: "(the answer's text could not be stored)",
    });
    for (const name of names.filter((name) => name !== "e")) {
      expect(lastWriteOf(name)).toEqual(ATTEMPT);
    }
  });

  it("leaves a success a success", async () => {
    refuse("a");
    await recorder.record(
      recording("a", { outcome: "succeeded", errorCode: null, statusCode: 200 }),
      inMs(60_000),
    );
    expect(database.writes.at(-1)?.[0]?.attempt).toMatchObject({ outcome: "succeeded", errorCode: null });
  });

  it("is given up when even the bare attempt is refused, and holds nobody else up", async () => {
    database.answer = async (batch) => {
      if (ids(batch).includes("b")) throw new Refused();
      return ids(batch);
    };
    expect(await Promise.all(recordAll(["a", "b", "c"]))).toEqual(["ours", "given_up", "ours"]);
    expect(await Promise.all(recordAll(["d"]))).toEqual(["ours"]);
  });

  it("is given up at once when there is no text to leave out", async () => {
    database.answer = async () => {
      throw new Refused();
    };
    expect(await recorder.record(recording("a", null), inMs(60_000))).toBe("given_up");
    expect(database.writes).toHaveLength(1);
  });

  it("outlasts the database going away in the middle", async () => {
    database.answer = async (batch, nth) => {
      if (nth === 2) throw new Error("connection refused");
      const culprit = batch.find((one) => one.deliveryId === "a");
      if (culprit?.attempt?.responseExcerpt === "busy") throw new Refused();
      return ids(batch);
    };
    expect(await Promise.all(recordAll(["a", "b"]))).toEqual(["ours", "ours"]);
  });
});
