import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** What a peer may send until the handshake is done: usual chains of certificates have 3 to 8 KB. */
const HANDSHAKE_BYTES_MAX = 16_384;
/** Of the thread that everybody waits for; a usual handshake takes 1 to 5 ms, and 17 on a busy machine. */
const USUAL_MS = 20;
/** To read a usual answer takes 0.05 ms, but thousands of headers, chunks or TLS records can be in one. */
const USUAL_ANSWER_MS = 0.5;
/** Of costly reads for each usual answer of a second: garbage collection makes some take long. */
const FREE_MS = 0.25;
/** After that it is seen how long reading took so far. */
const SLICE_BYTES = 8_192;
/** Each payer owes so many times as long as what it had read took; time pays, and whoever owes too much rests. */
const REST_TIMES = 20;
const OWED_MAX_MS = REST_TIMES * USUAL_MS;
/** Where more owe than these, each owes more in proportion: together they get a tenth of the thread. */
const OWING_PAYERS = 2;

/** Whose turns reading takes, and which. */
export type ReadingPayer = {
  readonly handshakes: ReadingTurns;
  readonly answers: ReadingTurns;
  readonly payer: string;
};

/**
 * OpenSSL checks every signature of a chain in one go, on our thread, even of one that nobody trusts. It takes 100 KB
 * of certificates, which can be made to take a second, and tells nobody before it does. And once the handshake is done,
 * a receiver can make 64 KB of key updates, or of headers, take as long as 2,000 usual answers. So the bytes pass
 * through here first, each piece in its payer's turn: counted, and timed.
 *
 * It stays between TLS and the socket for good, as Node cannot take it out, and costs a dispatcher about 10 µs a POST.
 * Losing options: only for receivers that are not known yet, who may answer well once and then not; counting what came
 * natively, which is known when OpenSSL has done its work.
 */
export function guardReading(
  socket: Socket,
  { handshakes, answers, payer: opener }: ReadingPayer,
): { readonly stream: Duplex; readonly allow: AllowAnswer; readonly failed: () => void } {
  let payer = opener;
  let bytes = 0;
  let bytesAllowed = HANDSHAKE_BYTES_MAX;
  let isHandshake = true;
  /** Milliseconds of processor time, of the handshake or of this answer. */
  let readMs = 0;
  let waiting: Buffer | null = null;
  /** While a piece waits nothing that comes behind it may pass it. */
  let isHeld = false;
  let isReading = false;
  let endWaits = false;
  let leave = () => {};
  const isCutOff = () => socket.destroyed && !socket.readableEnded;
  // As much of a Duplex as TLS uses. A real one, with a buffer for each read, took 180 µs of a dispatcher's POST.
  const stream = Object.assign(new EventEmitter(), {
    readable: true,
    writable: true,
    pause: () => socket.pause(),
    resume: () => isHeld || socket.resume(),
    cork: () => socket.cork(),
    uncork: () => socket.uncork(),
    write: (chunk: Buffer, sent: () => void) => socket.write(chunk, sent),
    end: (ended: () => void) => socket.end(ended),
    destroy: () => {
      waiting = null;
      leave();
      socket.destroy();
    },
  });
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > bytesAllowed) {
      const tooLarge = { code: "ERR_HANDSHAKE_TOO_LARGE" };
      stream.emit("error", isHandshake ? Object.assign(new Error(), tooLarge) : new TransportFloodedError());
      socket.destroy();
      return;
    }
    waiting = waiting === null ? chunk : Buffer.concat([waiting, chunk]);
    if (isReading || isHeld) return;
    leave = (isHandshake ? handshakes : answers).take(payer, read);
    if (!isReading) hold();
  });
  socket.on("end", () => {
    if (isReading || waiting !== null) endWaits = true;
    else stream.emit("end");
  });
  socket.on("error", (error) => stream.emit("error", error));
  socket.on("close", () => {
    // After an end what has come is still to be read.
    if (socket.readableEnded) return;
    leave();
    stream.emit("close");
  });
  return {
    stream: stream as unknown as Duplex,
    allow: (bytesMax, whose) => {
      if (!isHandshake && readMs <= USUAL_ANSWER_MS) answers.countUsual(payer);
      isHandshake = false;
      payer = whose;
      bytesAllowed = bytes + bytesMax;
      readMs = 0;
      return !isHeld;
    },
    failed: () => {
      if (readMs > 0 && readMs <= USUAL_MS) handshakes.charge(payer, readMs);
    },
  };

  function hold(): void {
    if (isHeld || waiting === null) return;
    isHeld = true;
    // What it came in is used again for what comes next.
    waiting = Buffer.from(waiting);
    socket.pause();
  }

  /** Hands on what waits, or the beginning of it. */
  function read(finish: (read: Read) => void, ms = 0): void {
    isReading = waiting !== null && !isCutOff() && ms <= USUAL_MS;
    if (waiting !== null && isReading) {
      const slice: Buffer = waiting.subarray(0, SLICE_BYTES);
      waiting = slice.length < waiting.length ? waiting.subarray(SLICE_BYTES) : null;
      const before = threadMs();
      stream.emit("data", slice);
      // undici reads what TLS made of it in a tick of its own.
      process.nextTick(() => read(finish, ms + threadMs() - before));
      return;
    }
    const beforeMs = readMs;
    readMs += ms;
    const isAll = waiting === null || isCutOff();
    if (!isAll) hold();
    else {
      if (isHeld) socket.resume();
      isHeld = false;
      if (endWaits) stream.emit("end");
      endWaits = false;
    }
    const usualMs = isHandshake ? USUAL_MS : USUAL_ANSWER_MS;
    finish({ costlyMs: readMs <= usualMs ? 0 : beforeMs <= usualMs ? readMs : ms, isAll });
  }
}

/** Of this thread. Linux counts it in steps of 4 ms, but up to now for whoever has just asked for all threads' time. */
function threadMs(): number {
  process.cpuUsage();
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

/**
 * Called for each answer that is expected, with its payer: with more bytes, TLS's own too, a TransportFloodedError ends
 * all. False: something that nobody expected has come and waits.
 */
export type AllowAnswer = (bytesMax: number, payer: string) => boolean;

/** The receiver sends without end, if not as an answer. */
export class TransportFloodedError extends Error {
  override readonly name = "TransportFloodedError";
  constructor() {
    super("far more came than an answer may have");
  }
}

/** Reads and then says, before anything else is read, what it was. */
export type Reader = (finish: (read: Read) => void) => void;

/** What was read in a turn. */
type Read = {
  /** Milliseconds of processor time; 0 for what is usual. */
  readonly costlyMs: number;
  /** False: more of it waits for another turn, after more than 20 ms of this one. */
  readonly isAll: boolean;
};

/** A payer's who waits, or rests until then by the monotonic clock. */
type Line = { readonly readers: Set<Reader>; restsUntilMs: number };

/**
 * After what took long, or a failed handshake, what comes for the same payer waits in line: all of it gets a twentieth
 * of the thread, however many names and addresses it is from, and all payers together a tenth. By the account that the
 * attempts are for: by address, others behind the same one would wait, too.
 */
export class ReadingTurns {
  readonly #turnMs: number;
  /** In turn; each is as long as its account's open connections at most. */
  readonly #lines = new Map<string, Line>();
  /** Until when each payer owes, by the monotonic clock. */
  readonly #paidAtMs = new Map<string, number>();
  /** Answers, and costly reads, of this second, by payer. */
  readonly #answers = new Map<string, { usual: number; costlyMs: number }>();
  #second = 0;
  /** Of this turn of the event loop, in milliseconds; less than none where it may be more. */
  #spentMs = 0;
  #isDue = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param turnMs of a turn of the event loop at least, or as long as all else takes. 0: no limit but debts */
  constructor(turnMs = 0) {
    this.#turnMs = turnMs;
  }

  /** Reads now or in its turn, and in further ones until it is all. The result gives the turn up. */
  take(payer: string, read: Reader): () => void {
    if (!this.#lines.has(payer) && !this.#isSpent) this.#read(payer, read);
    else {
      this.#lineOf(payer).readers.add(read);
      this.#goOn();
    }
    return () => void this.#lines.get(payer)?.readers.delete(read);
  }

  /** An answer for the payer was quick to read, and no other is part of it. */
  countUsual(payer: string): void {
    this.#answersOf(payer).usual += 1;
  }

  /** Whoever owes too much then rests. */
  charge(payer: string, costlyMs: number): void {
    const answers = this.#answersOf(payer);
    answers.costlyMs += costlyMs;
    if (costlyMs <= USUAL_MS && answers.costlyMs <= answers.usual * FREE_MS) return;
    const nowMs = performance.now();
    for (const [one, paidAtMs] of this.#paidAtMs) if (paidAtMs <= nowMs) this.#paidAtMs.delete(one);
    const beforeMs = this.#paidAtMs.get(payer) ?? nowMs;
    const paidAtMs = beforeMs + REST_TIMES * costlyMs * Math.max(1, this.#paidAtMs.size / OWING_PAYERS);
    this.#paidAtMs.set(payer, paidAtMs);
    if (paidAtMs - nowMs > OWED_MAX_MS) this.#lineOf(payer).restsUntilMs = paidAtMs;
  }

  #answersOf(payer: string) {
    const second = Math.floor(performance.now() / 1_000);
    if (second !== this.#second) this.#answers.clear();
    this.#second = second;
    const answers = this.#answers.get(payer) ?? { usual: 0, costlyMs: 0 };
    this.#answers.set(payer, answers);
    return answers;
  }

  #lineOf(payer: string): Line {
    const line = this.#lines.get(payer) ?? { readers: new Set(), restsUntilMs: 0 };
    this.#lines.set(payer, line);
    return line;
  }

  get #isSpent(): boolean {
    return this.#turnMs > 0 && this.#spentMs >= this.#turnMs;
  }

  #read(payer: string, read: Reader): void {
    const startedAtMs = performance.now();
    read(({ costlyMs, isAll }) => {
      this.#spentMs += performance.now() - startedAtMs;
      if (costlyMs > 0) this.charge(payer, costlyMs);
      if (!isAll) this.#lineOf(payer).readers.add(read);
      if (this.#isSpent || this.#lines.has(payer)) this.#goOn();
    });
  }

  #goOn(): void {
    if (this.#isDue || (this.#lines.size === 0 && !this.#isSpent)) return;
    const nowMs = performance.now();
    const restMs = Math.min(...Array.from(this.#lines.values(), (line) => line.restsUntilMs)) - nowMs;
    clearTimeout(this.#timer);
    if (restMs <= 0 && this.#turnMs > 0 && !this.#isSpent) this.#next();
    else if (restMs > 0 && !this.#isSpent) this.#timer = setTimeout(() => this.#goOn(), restMs).unref();
    else {
      this.#isDue = true;
      setImmediate(() => {
        this.#isDue = false;
        // With less, a busy thread would leave all new connections behind for seconds.
        this.#spentMs = Math.min(0, this.#turnMs - (performance.now() - nowMs));
        this.#next();
      });
    }
  }

  #next(): void {
    for (const [payer, line] of this.#lines) {
      if (line.restsUntilMs > performance.now()) continue;
      this.#lines.delete(payer);
      const [first] = line.readers;
      if (first === undefined) continue;
      // Behind all others.
      this.#lines.set(payer, line);
      line.readers.delete(first);
      this.#read(payer, first);
      return;
    }
    this.#goOn();
  }
}
