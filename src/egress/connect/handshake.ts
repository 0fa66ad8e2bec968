import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { networkOf } from "../../base/model/addresses.ts";
import { TtlMap } from "../../base/model/caches.ts";

/** What a peer may send until the handshake is done: usual chains of certificates have 3 to 8 KB. */
const HANDSHAKE_BYTES_MAX = 16_384;
/** Of the thread that everybody waits for; a usual handshake takes 1 to 5 ms, and 17 on a busy machine. */
const USUAL_MS = 20;
/** What takes longer is followed by so many times as long without another handshake with that network. */
const REST_TIMES = 20;
const ADDRESSES_MAX = 10_000;

/** The code of the error that ends a handshake in which more came. */
const HANDSHAKE_TOO_LARGE = "ERR_HANDSHAKE_TOO_LARGE";

/**
 * OpenSSL checks every signature of a chain in one go, on our thread, even of one that nobody trusts. It takes 100 KB
 * of certificates, which can be made to take a second, and tells nobody before it does. So the bytes pass through here
 * first: counted, and timed, until the handshake is done. `done` returns the milliseconds of processor time that it
 * took of this thread.
 *
 * It stays between TLS and the socket for good, because Node cannot take it out, at 10 µs a POST.
 */
export function guardHandshake(socket: Socket): { readonly stream: Duplex; readonly done: () => number } {
  let isDone = false;
  let bytes = 0;
  let micros = 0;
  const stream = new Duplex({
    read: () => void socket.resume(),
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
    const before = process.threadCpuUsage();
    push(chunk);
    const { user, system } = process.threadCpuUsage(before);
    micros += user + system;
  });
  socket.on("end", () => stream.push(null));
  socket.on("error", (error) => stream.destroy(error));
  // After an end what has come is still to be read.
  socket.on("close", () => socket.readableEnded || stream.destroy());
  return {
    stream,
    done: () => {
      isDone = true;
      return micros / 1_000;
    },
  };

  function push(chunk: Buffer): void {
    if (!stream.push(chunk)) socket.pause();
  }
}

/**
 * Handshakes with a network wait after one that took long: all of them together get a twentieth of the thread, however
 * many names lead there. Those of a CDN are as short as anybody's, and one that is short ends the waiting.
 */
export class HandshakeRests {
  readonly #now: () => number;
  readonly #resting: TtlMap<string, { readonly untilMs: number; readonly restMs: number }>;

  /** @param now a monotonic clock in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
    this.#resting = new TtlMap({ entriesMax: ADDRESSES_MAX, now });
  }

  /** For how many milliseconds the next handshake with the address has to wait, which is taken to be as long again. */
  takeTurn(address: string): number {
    const rest = this.#resting.get(networkOf(address));
    if (rest === undefined) return 0;
    this.#set(address, rest.untilMs + rest.restMs, rest.restMs);
    return rest.untilMs - this.#now();
  }

  note(address: string, tookMs: number): void {
    const network = networkOf(address);
    const restMs = REST_TIMES * tookMs;
    const untilMs = Math.max(this.#resting.get(network)?.untilMs ?? 0, this.#now() + restMs);
    if (tookMs <= USUAL_MS) this.#resting.delete(network);
    else this.#set(address, untilMs, restMs);
  }

  #set(address: string, untilMs: number, restMs: number): void {
    this.#resting.set(networkOf(address), { untilMs, restMs }, untilMs - this.#now());
  }
}
