import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { TtlMap } from "../../base/model/caches.ts";

/** What a peer may send until the handshake is done: usual chains of certificates have 3 to 8 KB. */
const HANDSHAKE_BYTES_MAX = 16_384;
/** Of the thread that everybody waits for; a usual handshake takes 1 to 5 ms, and 17 on a busy machine. */
const USUAL_MS = 20;
/** What takes longer is followed by so many times as long without another handshake of the same payer. */
const REST_TIMES = 20;
const PAYERS_MAX = 10_000;

/** The code of the error that ends a handshake in which more came. */
const HANDSHAKE_TOO_LARGE = "ERR_HANDSHAKE_TOO_LARGE";

/**
 * OpenSSL checks every signature of a chain in one go, on our thread, even of one that nobody trusts. It takes 100 KB
 * of certificates, which can be made to take a second, and tells nobody before it does. So the bytes pass through here
 * first, each of the peer's flights in its payer's turn: counted, and timed, until the handshake is done.
 *
 * It stays between TLS and the socket for good, because Node cannot take it out, at 10 µs a POST.
 */
export function guardHandshake(
  socket: Socket,
  turns: HandshakeTurns,
  payer: string,
): { readonly stream: Duplex; readonly done: () => void } {
  let isDone = false;
  /** A flight is: nothing that comes behind it may pass it. */
  let isWaiting = false;
  let bytes = 0;
  let tookMs = 0;
  const stream = new Duplex({
    read: () => void (isWaiting || socket.resume()),
    write: (chunk, _, sent) => void socket.write(chunk, sent),
    writev: (chunks, sent) => void socket.write(Buffer.concat(chunks.map(({ chunk }) => chunk)), sent),
    final: (ended) => void socket.end(ended),
    destroy: (error, destroyed) => {
      socket.destroy();
      destroyed(error);
    },
  });
  socket.on("data", (chunk: Buffer) => {
    if (isDone) return push(chunk);
    bytes += chunk.length;
    if (bytes > HANDSHAKE_BYTES_MAX) {
      const message = `More than ${HANDSHAKE_BYTES_MAX} bytes came before the handshake was done.`;
      stream.destroy(Object.assign(new Error(message), { code: HANDSHAKE_TOO_LARGE }));
      return;
    }
    const waitMs = turns.take(payer);
    if (waitMs <= 0) return take(chunk);
    isWaiting = true;
    socket.pause();
    setTimeout(() => {
      isWaiting = false;
      if (stream.destroyed) return;
      take(chunk);
      if (socket.readableEnded) stream.push(null);
      else socket.resume();
    }, waitMs);
  });
  socket.on("end", () => isWaiting || stream.push(null));
  socket.on("error", (error) => stream.destroy(error));
  // After an end what has come is still to be read.
  socket.on("close", () => socket.readableEnded || stream.destroy());
  return {
    stream,
    done: () => {
      isDone = true;
      if (tookMs <= USUAL_MS) turns.end(payer);
    },
  };

  function take(chunk: Buffer): void {
    const before = process.threadCpuUsage();
    push(chunk);
    const { user, system } = process.threadCpuUsage(before);
    const ms = (user + system) / 1_000;
    tookMs += ms;
    if (ms > USUAL_MS) turns.charge(payer, ms);
  }

  function push(chunk: Buffer): void {
    if (!stream.push(chunk)) socket.pause();
  }
}

/**
 * After a handshake that took long, the next ones of its payer wait, one behind the other: all of them together get a
 * twentieth of the thread, however many names and addresses they are with. A usual one ends the waiting. By the account
 * that the attempts are for: by address, others behind the same one would wait, too.
 */
export class HandshakeTurns {
  readonly #now: () => number;
  readonly #resting: TtlMap<string, { readonly untilMs: number; readonly restMs: number }>;

  /** @param now a monotonic clock in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
    this.#resting = new TtlMap({ entriesMax: PAYERS_MAX, now });
  }

  /** In how many milliseconds it is the payer's next turn, which is taken to be as costly as the last. */
  take(payer: string): number {
    const rest = this.#resting.get(payer);
    if (rest === undefined) return 0;
    this.#set(payer, rest.untilMs + rest.restMs, rest.restMs);
    return rest.untilMs - this.#now();
  }

  charge(payer: string, ms: number): void {
    const restMs = REST_TIMES * ms;
    this.#set(payer, Math.max(this.#resting.get(payer)?.untilMs ?? 0, this.#now() + restMs), restMs);
  }

  end(payer: string): void {
    this.#resting.delete(payer);
  }

  #set(payer: string, untilMs: number, restMs: number): void {
    this.#resting.set(payer, { untilMs, restMs }, untilMs - this.#now());
  }
}
