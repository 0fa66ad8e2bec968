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
    const found = receivedBytes < expectedBytes ? `has only ${receivedBytes}` : "goes on";
    super(`The body was to have ${expectedBytes} bytes and ${found}.`);
    this.expectedBytes = expectedBytes;
    this.receivedBytes = receivedBytes;
  }
}

/** Whoever asks is storing as much at once as it may. Once some of that is stored, there is room again. */
export class ObjectShareError extends Error {
  override readonly name = "ObjectShareError";

  constructor(asked: string) {
    super(`The object store could not ${asked}: whoever asks has its share of the memory already`);
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
