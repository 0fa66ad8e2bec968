import type { Readable } from "node:stream";

/** There is no object under this key. */
export class ObjectNotFoundError extends Error {
  override readonly name = "ObjectNotFoundError";

  constructor(key: string, options?: ErrorOptions) {
    super(`There is no object ${JSON.stringify(key)}.`, options);
  }
}

/** A range that begins behind the object's end. */
export class ObjectRangeError extends Error {
  override readonly name = "ObjectRangeError";

  constructor(key: string, start: number, options?: ErrorOptions) {
    super(`The object ${JSON.stringify(key)} has no byte ${start}.`, options);
  }
}

/** A body that is shorter or longer than was said. */
export class BodyLengthError extends Error {
  override readonly name = "BodyLengthError";
  readonly expectedBytes: number;
  /** Up to where it was read: of a body that is too long, not all. */
  readonly receivedBytes: number;

  constructor(expectedBytes: number, receivedBytes: number) {
    const found = receivedBytes < expectedBytes ? `has only ${receivedBytes}` : "is longer";
    super(`The body should have ${expectedBytes} bytes, but ${found}.`);
    this.expectedBytes = expectedBytes;
    this.receivedBytes = receivedBytes;
  }
}

/** Whoever asks is storing as much at once as it may. Once some of that is stored, there is room again. */
export class ObjectShareError extends Error {
  override readonly name = "ObjectShareError";

  constructor(asked: string) {
    super(`The object store could not ${asked}: the caller already has its share of the memory`);
  }
}

/** The store did not answer, or could not do what it was asked for: the same again may well succeed. */
export class ObjectStoreAwayError extends Error {
  override readonly name = "ObjectStoreAwayError";

  constructor(asked: string, cause: unknown) {
    const found = cause instanceof Error ? cause.message : String(cause);
    super(`The object store could not ${asked}: ${found}`, { cause });
  }
}

/** S3's limit, in UTF-8. */
const KEY_BYTES_MAX = 1_024;

/** Control characters, and what XML, in which S3 answers, has no way to write. */
const UNWRITABLE = /[\p{Cc}\uFFFE\uFFFF]/u;

/**
 * Lets a key pass that every store takes as it is: at most 1,024 bytes, segments between single slashes, none of them
 * `.` or `..`. Keys are made by us, so one that does not pass is a bug, and no client's fault.
 * @throws RangeError
 */
export function checkObjectKey(key: string): void {
  const fault = faultOf(key);
  if (fault !== null) throw new RangeError(`${JSON.stringify(key)} is not a valid object key: ${fault}.`);
}

/** Whether we can have written it: others leave things in a bucket, such as what marks a folder. */
export function isObjectKey(key: string): boolean {
  return faultOf(key) === null;
}

function faultOf(key: string): string | null {
  if (!key.isWellFormed()) return "it is not Unicode text";
  if (Buffer.byteLength(key) > KEY_BYTES_MAX) return `it is longer than ${KEY_BYTES_MAX} bytes`;
  if (UNWRITABLE.test(key)) return "it has a character that cannot be written";
  const segments = key.split("/");
  if (segments.includes("")) return "one of its segments is empty";
  return segments.some((segment) => segment === "." || segment === "..") ? "it leads elsewhere" : null;
}

/**
 * Bytes under keys. What is stored under a key never changes in place: it is replaced whole, or removed. Keys are those
 * that `checkObjectKey` lets pass; no key is another one's folder (`a` and `a/b`), which not every server can hold.
 *
 * Everything rejects with `ObjectStoreAwayError` when the store does not answer, or refuses, for reasons that are not
 * the caller's, and with the reason of its `signal` when that is aborted.
 */
export type ObjectStore = {
  /**
   * Stores `sizeBytes` bytes of `body`, atomically: who reads meets all of them, or what was there before. When it
   * rejects, nothing is stored; after an outage it cannot always be known, and all of it may be. What `body` throws is
   * thrown as it is. The body is read by its iterator, once there is room for it, and not destroyed: that, and how long
   * it may stand still, is the caller's.
   * @param sharer who has a share of the memory that puts hold; absent: nobody
   * @throws BodyLengthError, or ObjectShareError when the sharer has its share
   */
  put(
    key: string,
    body: AsyncIterable<Uint8Array>,
    sizeBytes: number,
    signal?: AbortSignal,
    sharer?: string,
  ): Promise<void>;
  /**
   * What is stored now, whatever happens to the key while it is read.
   * @param range both ends inclusive; what is beyond the object's end is left out. Null: everything
   * @throws ObjectNotFoundError, or ObjectRangeError when the range begins behind the end
   */
  get(key: string, range?: ByteRange | null, signal?: AbortSignal): Promise<ObjectContent>;
  /**
   * Stores the same bytes under a second key, atomically, without reading them here. Both live on alone. Aborted, it
   * rejects at once, and may still be made a little later.
   * @throws ObjectNotFoundError
   */
  copy(from: string, to: string, signal?: AbortSignal): Promise<void>;
  /** Where there is nothing, that is fine. False: there was nothing, as far as the store tells. */
  remove(key: string, signal?: AbortSignal): Promise<boolean>;
  /** @throws ObjectNotFoundError */
  stat(key: string, signal?: AbortSignal): Promise<Pick<ObjectContent, "sizeBytes">>;
  /**
   * The keys below a folder (`spaces/`), or its folders, each with a slash at its end; in no order. What is stored or
   * removed meanwhile may be among them or not. For what no row knows: everything else is found by its row.
   */
  list(folder: string, what: "keys" | "folders", signal?: AbortSignal): AsyncIterable<string>;
  /**
   * Removes what puts and copies left behind that were killed and had not gone on since `before`. Nobody ever reads it,
   * but it takes space.
   * @returns how many
   */
  removeLeftovers(before: Date, signal?: AbortSignal): Promise<number>;
  /** For who starts: that objects can be read now and, as far as that is told without storing one, be stored. */
  check(signal?: AbortSignal): Promise<void>;
  /** Nothing may be asked afterwards. */
  close(): Promise<void>;
};

export type ByteRange = { readonly start: number; readonly end: number };

export type ObjectContent = {
  /** Of the whole object. */
  readonly sizeBytes: number;
  /** What `body` has of it. Null: everything. */
  readonly range: ByteRange | null;
  /** To be read to its end, or destroyed: it holds a file or a connection. It fails with `ObjectStoreAwayError`. */
  readonly body: Readable;
};
