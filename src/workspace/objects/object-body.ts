import { Readable } from "node:stream";

export type BodySource = {
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
