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
/** A payer of whose reads fewer than one in so many are costly is busy: garbage collection makes some take long. */
const COSTLY_ONE_IN = 8;
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
  let isReading = false;
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
    if (!isReading) hold();
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

  function hold(): void {
    if (isHeld || waiting === null) return;
    isHeld = true;
    // What it came in is used again for what comes next.
    waiting = Buffer.from(waiting);
    socket.pause();
  }

  /** Hands on what waits, or the beginning of it. */
  function read(finish: (read: Read) => void, ms = 0): void {
    isReading = waiting !== null && !socket.destroyed && ms <= USUAL_MS;
    if (waiting !== null && isReading) {
      const slice: Buffer = waiting.subarray(0, SLICE_BYTES);
      waiting = slice.length < waiting.length ? waiting.subarray(SLICE_BYTES) : null;
      const before = process.threadCpuUsage();
      stream.emit("data", slice);
      // undici reads what TLS made of it in a tick of its own.
      process.nextTick(() => {
        const { user, system } = process.threadCpuUsage(before);
        read(finish, ms + (user + system) / 1_000);
      });
      return;
    }
    incoming.readMs += ms;
    const isAll = waiting === null || socket.destroyed;
    if (!isAll) hold();
    else if (isHeld) {
      isHeld = false;
      if (socket.readableEnded) stream.emit("end");
      else socket.resume();
    }
    const isCostly = isDone ? incoming.readMs > USUAL_ANSWER_MS : ms > USUAL_MS;
    finish({ costlyMs: isCostly ? ms : 0, isAll });
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

/** Reads and then says, before anything else is read, what it was. */
export type Reader = (finish: (read: Read) => void) => void;

/** What was read in a turn. */
type Read = {
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
  readonly #lines = new Map<string, Set<Reader>>();
  /** What was read in this second, by payer. */
  readonly #reads = new Map<string, { count: number; costly: number; costlyMs: number }>();
  #second = 0;

  /** Reads now or in its turn, and in further ones until it is all. The result gives the turn up. */
  take(payer: string, read: Reader): () => void {
    const line = this.#lines.get(payer);
    if (line === undefined) this.#run(payer, read, false);
    else line.add(read);
    return () => void this.#lines.get(payer)?.delete(read);
  }

  /** `isNext`: of its line, which goes on when it was read. */
  #run(payer: string, read: Reader, isNext: boolean): void {
    read(({ costlyMs, isAll }) => {
      const reads = this.#count(payer, costlyMs);
      const share = Math.max(COSTLY_ANSWERS_MIN_MS, COSTLY_ANSWERS_MS / this.#reads.size);
      const rests =
        costlyMs > USUAL_MS || (reads.costlyMs > share && reads.costly * COSTLY_ONE_IN > reads.count);
      const isNew = rests && !this.#lines.has(payer);
      if (isNew) this.#lines.set(payer, new Set());
      if (!isAll) this.#lines.get(payer)!.add(read);
      if (!isNew && !isNext) return;
      if (rests) {
        this.#reads.delete(payer);
        const restMs = REST_TIMES * reads.costlyMs * Math.max(1, this.#lines.size / RESTING_PAYERS);
        setTimeout(() => this.#next(payer), restMs).unref();
      } else setImmediate(() => this.#next(payer));
    });
  }

  #count(payer: string, costlyMs: number) {
    const second = Math.floor(performance.now() / 1_000);
    if (second !== this.#second) this.#reads.clear();
    this.#second = second;
    const before = this.#reads.get(payer) ?? { count: 0, costly: 0, costlyMs: 0 };
    const costly = before.costly + (costlyMs > 0 ? 1 : 0);
    const reads = { count: before.count + 1, costly, costlyMs: before.costlyMs + costlyMs };
    this.#reads.set(payer, reads);
    return reads;
  }

  #next(payer: string): void {
    const line = this.#lines.get(payer)!;
    const [first] = line;
    if (first === undefined) this.#lines.delete(payer);
    else if (line.delete(first)) this.#run(payer, first, true);
  }
}
