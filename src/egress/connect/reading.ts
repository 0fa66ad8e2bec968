import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** What a peer may send until the handshake is done: usual chains of certificates have 3 to 8 KB. */
const HANDSHAKE_BYTES_MAX = 16_384;
/** Of the thread that everybody waits for; a usual handshake takes 1 to 5 ms, and 17 on a busy machine. */
const USUAL_MS = 20;
/** To read a usual answer takes 0.05 ms, but thousands of headers, chunks or TLS records can be in one. */
const USUAL_ANSWER_MS = 0.5;
/** What all answers that take longer may take of a second, and one payer's whatever the others' take. */
const COSTLY_ANSWERS_MS = 100;
const COSTLY_ANSWERS_MIN_MS = 20;
/** After that it is seen how long reading took so far. */
const SLICE_BYTES = 8_192;
/** What takes longer is followed by so many times as long without anything more of the same payer. */
const REST_TIMES = 20;
/** Where more rest at once than these, each rests longer in proportion: together they get a tenth of the thread. */
const RESTING_PAYERS = 2;

/** The code of the error that ends a handshake in which more came. */
const HANDSHAKE_TOO_LARGE = "ERR_HANDSHAKE_TOO_LARGE";

/** Whose turns reading takes. */
export type ReadingPayer = { readonly turns: ReadingTurns; readonly payer: string };

/**
 * OpenSSL checks every signature of a chain in one go, on our thread, even of one that nobody trusts. It takes 100 KB
 * of certificates, which can be made to take a second, and tells nobody before it does. And once the handshake is done,
 * a receiver can make 64 KB of key updates, or of headers, take as long as 2,000 usual answers. So the bytes pass
 * through here first, each piece in its payer's turn: counted, and timed.
 *
 * It stays between TLS and the socket for good, because Node cannot take it out, and costs a dispatcher about 10 µs for
 * each POST (test/bench, http-endpoint). Losing options: only for receivers that are not known yet, who may answer well
 * once and then not; counting what came natively, which is known when OpenSSL has done its work.
 */
export function guardReading(
  socket: Socket,
  { turns, payer }: ReadingPayer,
): { readonly stream: Duplex; readonly incoming: Incoming; readonly done: () => void } {
  const incoming: Incoming = { bytes: 0, bytesAllowed: HANDSHAKE_BYTES_MAX, readMs: 0 };
  let isDone = false;
  let waiting: Buffer | null = null;
  /** While a piece waits nothing that comes behind it may pass it. */
  let isHeld = false;
  let leave = () => {};
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
    destroy: () => socket.destroy(),
  });
  socket.on("data", (chunk: Buffer) => {
    incoming.bytes += chunk.length;
    if (incoming.bytes > incoming.bytesAllowed) {
      stream.emit("error", isDone ? new TransportFloodedError() : handshakeTooLarge());
      socket.destroy();
      return;
    }
    waiting = chunk;
    leave = turns.take(payer, read);
    if (waiting === null) return;
    // What it came in is used again for what comes next.
    waiting = Buffer.from(waiting);
    isHeld = true;
    socket.pause();
  });
  socket.on("end", () => isHeld || stream.emit("end"));
  socket.on("error", (error) => stream.emit("error", error));
  socket.on("close", () => {
    leave();
    // After an end what has come is still to be read.
    if (!socket.readableEnded) stream.emit("close");
  });
  return {
    stream: stream as unknown as Duplex,
    incoming,
    done: () => {
      isDone = true;
      incoming.bytesAllowed = Number.POSITIVE_INFINITY;
      incoming.readMs = 0;
    },
  };

  /** Hands on what waits, or the beginning of it. */
  function read(): Read {
    let ms = 0;
    while (waiting !== null && !socket.destroyed && ms <= USUAL_MS) {
      const slice: Buffer = waiting.subarray(0, SLICE_BYTES);
      waiting = slice.length < waiting.length ? waiting.subarray(SLICE_BYTES) : null;
      const before = process.threadCpuUsage();
      stream.emit("data", slice);
      const { user, system } = process.threadCpuUsage(before);
      ms += (user + system) / 1_000;
    }
    incoming.readMs += ms;
    const isAll = waiting === null || socket.destroyed;
    if (isHeld && isAll) {
      isHeld = false;
      if (socket.readableEnded) stream.emit("end");
      else socket.resume();
    }
    const isUsual = isDone ? incoming.readMs <= USUAL_ANSWER_MS : ms <= USUAL_MS;
    return { costlyMs: isUsual ? 0 : ms, isAll };
  }
}

/** What came over a connection, be it TLS's own records. Whoever uses the connection sets the limits anew. */
export type Incoming = {
  bytes: number;
  /** With more the connection ends, by a TransportFloodedError. */
  bytesAllowed: number;
  /** Milliseconds of processor time that reading took since this was set to 0. */
  readMs: number;
};

/** The receiver sends without end, if not as an answer. */
export class TransportFloodedError extends Error {
  override readonly name = "TransportFloodedError";
  constructor() {
    super("far more came than an answer may have");
  }
}

function handshakeTooLarge(): Error {
  const message = `More than ${HANDSHAKE_BYTES_MAX} bytes came before the handshake was done.`;
  return Object.assign(new Error(message), { code: HANDSHAKE_TOO_LARGE });
}

/** What was read in a turn. */
export type Read = {
  /** Milliseconds of processor time; 0 for what is usual. */
  readonly costlyMs: number;
  /** False: more of it waits for another turn, after more than 20 ms of this one. */
  readonly isAll: boolean;
};

/**
 * After a piece that took long, or many answers that did, what comes for the same payer waits in line: all of it
 * together gets a twentieth of the thread, however many names and addresses it is from, and all payers together a
 * tenth; one that is quick lets the next through at once. By the account that the attempts are for: by address, others
 * behind the same one would wait, too.
 */
export class ReadingTurns {
  /** Of those who rest; each line is as long as its account's open connections at most. */
  readonly #lines = new Map<string, Set<() => Read>>();
  /** What was costly of this second, in milliseconds, by payer. */
  readonly #costlyMs = new Map<string, number>();
  #second = 0;

  /** Reads now or in its turn, and in further ones until it is all. The result gives the turn up. */
  take(payer: string, read: () => Read): () => void {
    const line = this.#lines.get(payer);
    if (line === undefined) this.#run(payer, read);
    else line.add(read);
    return () => void this.#lines.get(payer)?.delete(read);
  }

  #run(payer: string, read: () => Read): void {
    const { costlyMs, isAll } = read();
    const ms = costlyMs === 0 ? 0 : this.#count(payer, costlyMs);
    const share = Math.max(COSTLY_ANSWERS_MIN_MS, COSTLY_ANSWERS_MS / this.#costlyMs.size);
    const rests = costlyMs > USUAL_MS || ms > share;
    if (rests && !this.#lines.has(payer)) this.#lines.set(payer, new Set());
    const line = this.#lines.get(payer);
    if (line === undefined) return;
    if (!isAll) line.add(read);
    if (rests) {
      this.#costlyMs.delete(payer);
      const restMs = REST_TIMES * ms * Math.max(1, this.#lines.size / RESTING_PAYERS);
      setTimeout(() => this.#next(payer), restMs).unref();
    } else setImmediate(() => this.#next(payer));
  }

  /** Returns what it makes of this second. */
  #count(payer: string, costlyMs: number): number {
    const second = Math.floor(performance.now() / 1_000);
    if (second !== this.#second) this.#costlyMs.clear();
    this.#second = second;
    const ms = costlyMs + (this.#costlyMs.get(payer) ?? 0);
    this.#costlyMs.set(payer, ms);
    return ms;
  }

  #next(payer: string): void {
    const line = this.#lines.get(payer)!;
    const [first] = line;
    if (first === undefined) {
      this.#lines.delete(payer);
      return;
    }
    line.delete(first);
    this.#run(payer, first);
  }
}
