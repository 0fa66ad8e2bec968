import { addAbortListener } from "node:events";
import { Readable } from "node:stream";
import type { Place } from "../../base/model/account-places.ts";
import { BodyLengthError } from "./object-store.ts";

/** The signal of who gave none. */
export const NEVER: AbortSignal = new AbortController().signal;

/** Reads a body into buffers of the caller's, and makes sure that it has exactly as many bytes as were said. */
export class BodyReader {
  readonly #body: AsyncIterable<Uint8Array>;
  /** Null: nobody has read yet. */
  #chunks: AsyncIterator<Uint8Array> | null = null;
  readonly #sizeBytes: number;
  /** What of the last chunk had no room. */
  #rest: Uint8Array = new Uint8Array();
  #receivedBytes = 0;

  constructor(body: AsyncIterable<Uint8Array>, sizeBytes: number) {
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) throw new RangeError(`No size: ${sizeBytes}`);
    // The iterator listens once it is asked, and meets then what came before: until then nobody would.
    if (body instanceof Readable) body.on("error", () => undefined);
    this.#body = body;
    this.#sizeBytes = sizeBytes;
  }

  /**
   * Fills `buffer` from its start to its end.
   * @param place what is told of the bytes that come; null: nothing
   * @throws BodyLengthError, what the body throws, the signal's reason
   */
  async fill(buffer: Uint8Array, signal: AbortSignal, place: Place | null = null): Promise<void> {
    let filledBytes = 0;
    place?.moved(0);
    while (filledBytes < buffer.length) {
      if (this.#rest.length === 0) this.#rest = await this.#expectChunk(signal);
      const taken = this.#rest.subarray(0, buffer.length - filledBytes);
      buffer.set(taken, filledBytes);
      filledBytes += taken.length;
      place?.moved(taken.length);
      this.#rest = this.#rest.subarray(taken.length);
    }
    place?.rest();
  }

  /** Reads the end, behind which nothing may come. */
  async end(signal: AbortSignal): Promise<void> {
    while (this.#rest.length === 0) {
      const chunk = await this.#read(signal);
      if (chunk === null) return;
      this.#rest = chunk;
    }
    throw new BodyLengthError(this.#sizeBytes, this.#receivedBytes);
  }

  async #expectChunk(signal: AbortSignal): Promise<Uint8Array> {
    const chunk = await this.#read(signal);
    if (chunk === null) throw new BodyLengthError(this.#sizeBytes, this.#receivedBytes);
    return chunk;
  }

  /** The next chunk, or null at the end. */
  async #read(signal: AbortSignal): Promise<Uint8Array | null> {
    signal.throwIfAborted();
    // Its `return` is never called: that would destroy a stream, and with it the connection that is to be answered on.
    this.#chunks ??= this.#body[Symbol.asyncIterator]();
    const chunks = this.#chunks;
    const { done, value } = await unlessAborted(() => chunks.next(), signal);
    if (done) return null;
    this.#receivedBytes += value.length;
    return value;
  }
}

/**
 * The result of `work`, or the reason of a signal that is aborted before. Not Promise.race: against a promise that
 * lasts, that keeps something for every chunk.
 */
export async function unlessAborted<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  using _ = addAbortListener(signal, () => reject(signal.reason));
  work().then(resolve, reject);
  return await promise;
}

type BodySource = {
  /** The next bytes, or null at the end. Asked again only once it has answered. */
  readonly next: () => Promise<Uint8Array | null>;
  /** Called once, however reading ends. */
  readonly close: () => Promise<void>;
};

/**
 * A stream that asks its source when somebody reads. Readable.from would do, but that never calls the `finally` of a
 * generator that was not yet asked, so a body that is thrown away unread would keep its file open.
 */
export function objectBody(source: BodySource): Readable {
  return new Readable({
    read() {
      source.next().then(
        (bytes) => this.push(bytes),
        (error: Error) => this.destroy(error),
      );
    },
    destroy(error, done) {
      source.close().then(
        () => done(error),
        () => done(error),
      );
    },
  });
}
