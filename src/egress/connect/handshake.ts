import { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** What a peer may send until the handshake is done: usual chains of certificates have 3 to 8 KB. */
const HANDSHAKE_BYTES_MAX = 16_384;
/** Of the thread that everybody waits for; a usual handshake takes 1 to 5 ms, and 17 on a busy machine. */
const USUAL_MS = 20;
/** What takes longer is followed by so many times as long without another handshake of the same payer. */
const REST_TIMES = 20;
/** Where more rest at once than these, each rests longer in proportion: together they get a tenth of the thread. */
const RESTING_PAYERS = 2;

/** The code of the error that ends a handshake in which more came. */
const HANDSHAKE_TOO_LARGE = "ERR_HANDSHAKE_TOO_LARGE";

/** Whose turns a handshake takes. */
export type HandshakePayer = { readonly turns: HandshakeTurns; readonly payer: string };

/**
 * OpenSSL checks every signature of a chain in one go, on our thread, even of one that nobody trusts. It takes 100 KB
 * of certificates, which can be made to take a second, and tells nobody before it does. So the bytes pass through here
 * first, each of the peer's flights in its payer's turn: counted, and timed, until the handshake is done.
 *
 * It stays between TLS and the socket for good, because Node cannot take it out, and costs a dispatcher about 10 µs for
 * each POST (test/bench, http-endpoint). Losing options: only for receivers that are not known yet, who may answer well
 * once and then not; counting what came natively, which is known when OpenSSL has done its work.
 */
export function guardHandshake(
  socket: Socket,
  { turns, payer }: HandshakePayer,
): { readonly stream: Duplex; readonly done: () => void } {
  let isDone = false;
  let bytes = 0;
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
    if (isDone) {
      stream.emit("data", chunk);
      return;
    }
    bytes += chunk.length;
    if (bytes > HANDSHAKE_BYTES_MAX) {
      const message = `More than ${HANDSHAKE_BYTES_MAX} bytes came before the handshake was done.`;
      stream.emit("error", Object.assign(new Error(message), { code: HANDSHAKE_TOO_LARGE }));
      socket.destroy();
      return;
    }
    waiting = chunk;
    leave = turns.take(payer, go);
    isHeld = waiting !== null;
    if (!isHeld) return;
    // What it came in is used again for what comes next.
    waiting = Buffer.from(chunk);
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
    done: () => {
      isDone = true;
      leave();
      go();
    },
  };

  /** Hands on what waits. Returns the milliseconds of processor time that it took. */
  function go(): number {
    const chunk = waiting;
    waiting = null;
    if (chunk === null || socket.destroyed) return 0;
    const before = process.threadCpuUsage();
    stream.emit("data", chunk);
    const { user, system } = process.threadCpuUsage(before);
    if (isHeld) {
      isHeld = false;
      if (socket.readableEnded) stream.emit("end");
      else socket.resume();
    }
    return (user + system) / 1_000;
  }
}

/**
 * After a piece of a handshake that took long, the next ones of its payer wait in line: all of them together get a
 * twentieth of the thread, however many names and addresses they are with, and all payers together a tenth; one that is
 * quick lets the next through at once. By the account that the attempts are for: by address, others behind the same one
 * would wait, too.
 */
export class HandshakeTurns {
  /** Of those who rest; each line is as long as its account's open connections at most. */
  readonly #lines = new Map<string, Set<() => number>>();

  /** Does the work, which returns how many milliseconds it took, now or in its turn. The result gives the turn up. */
  take(payer: string, work: () => number): () => void {
    const line = this.#lines.get(payer);
    if (line === undefined) this.#run(payer, work);
    else line.add(work);
    return () => void line?.delete(work);
  }

  #run(payer: string, work: () => number): void {
    const ms = work();
    const isCostly = ms > USUAL_MS;
    if (isCostly && !this.#lines.has(payer)) this.#lines.set(payer, new Set());
    const restMs = REST_TIMES * ms * Math.max(1, this.#lines.size / RESTING_PAYERS);
    if (isCostly) setTimeout(() => this.#next(payer), restMs).unref();
    else if (this.#lines.has(payer)) setImmediate(() => this.#next(payer));
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
