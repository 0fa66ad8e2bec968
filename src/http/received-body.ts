import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { type Readable, Transform, type TransformCallback } from "node:stream";
import type { Place } from "../base/model/account-places.ts";
import { receiveByProgress, sendContinue } from "./connections.ts";
import { contentDigest } from "./content-answer.ts";
import type { AnnouncedBody, ReceivedBody } from "./operation-io.ts";
import { invalidRequest, Problem, TemporarilyUnavailable } from "./problems.ts";

/** How many bytes have to come within which time, but for the last. */
export type BodyProgress = { readonly progressWithinMs: number; readonly receivedBytesMin: number };

/** What is told of bytes that come, and of when nobody takes them. */
type MovingPlace = Pick<Place, "moved" | "rest">;

/** A streamed body on its way from the connection to its operation. */
export class IncomingBody implements ReceivedBody {
  /** What makes it the same body when it comes again. */
  readonly announced: { readonly mediaType: string; readonly bytes: number; readonly digest: string };
  readonly mediaType: string;
  readonly bytes: number;
  readonly sha256: Buffer;
  readonly #request: IncomingMessage;
  readonly #progress: BodyProgress;
  readonly #opened = Promise.withResolvers<void>();
  readonly #complete = Promise.withResolvers<void>();
  #checked: CheckedBytes | null = null;
  #isClosed = false;
  #place: MovingPlace | null = null;
  #cutBy: Problem | TemporarilyUnavailable | null = null;

  constructor(request: IncomingMessage, announced: AnnouncedBody, progress: BodyProgress) {
    const { mediaType, bytes, sha256 } = announced;
    this.announced = { mediaType, bytes, digest: contentDigest(sha256) };
    this.mediaType = mediaType;
    this.bytes = bytes;
    this.sha256 = sha256;
    this.#request = request;
    this.#progress = progress;
  }

  open(): Readable {
    if (this.#checked !== null) throw new Error("A body is read once.");
    if (this.#isClosed) throw this.#cutBy ?? new Error("The request is over.");
    const request = this.#request;
    const checked = new CheckedBytes(this, this.#progress, this.#place, this.#complete.resolve);
    this.#checked = checked;
    this.#opened.resolve();
    const goneAway = () => {
      if (request.readableEnded) return;
      checked.destroy(invalidRequest("body", "The connection ended before the body did."));
    };
    request.once("close", goneAway);
    request.once("error", goneAway);
    checked.once("close", () => {
      request.off("close", goneAway);
      // Not destroyed with it: that would take the connection from under the answer.
      request.unpipe(checked);
    });
    if (request.destroyed) goneAway();
    receiveByProgress(request);
    sendContinue(request);
    request.pipe(checked);
    return checked;
  }

  /** Its bytes move for this place, from when it is opened. */
  movesFor(place: MovingPlace): void {
    this.#place = place;
    place.rest();
  }

  /** Why it did not arrive; null: it did, or nobody took all of it. */
  get failure(): Error | null {
    const error = this.#checked?.errored ?? this.#cutBy;
    return error instanceof Problem || error instanceof TemporarilyUnavailable ? error : null;
  }

  /** Resolves when somebody begins to take it. */
  get opened(): Promise<void> {
    return this.#opened.promise;
  }

  /** Resolves when every byte has come and the digest is right. */
  get complete(): Promise<void> {
    return this.#complete.promise;
  }

  get isComplete(): boolean {
    return this.#checked?.isComplete ?? false;
  }

  /** Its place is another's, or it may not go on, whether somebody has begun to take it or not. */
  cut(reason: Problem | TemporarilyUnavailable): void {
    this.#isClosed = true;
    this.#cutBy = reason;
    this.#checked?.destroy(reason);
  }

  /** Nobody wants more of it. */
  close(): void {
    this.#isClosed = true;
    this.#checked?.destroy();
  }
}

/** Passes bytes on, the last of them only when all have come and their digest is the announced one. */
class CheckedBytes extends Transform {
  isComplete = false;
  readonly #announced: AnnouncedBody;
  readonly #hash = createHash("sha256");
  readonly #onComplete: () => void;
  readonly #stalled: NodeJS.Timeout;
  readonly #progress: BodyProgress;
  readonly #place: MovingPlace | null;
  #bytes = 0;
  /** Since the time began anew. */
  #movedBytes = 0;

  constructor(
    announced: AnnouncedBody,
    progress: BodyProgress,
    place: MovingPlace | null,
    onComplete: () => void,
  ) {
    super();
    this.#progress = progress;
    this.#place = place;
    this.#announced = announced;
    this.#onComplete = onComplete;
    this.#stalled = setTimeout(() => this.destroy(this.#whoStalled()), progress.progressWithinMs);
    this.once("close", () => clearTimeout(this.#stalled));
    // Whoever reads it sees the error; nobody does when it fails after its reader has.
    this.on("error", () => undefined);
  }

  override _read(bytes: number): void {
    this.#place?.moved(0);
    super._read(bytes);
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#place?.moved(chunk.length);
    this.#movedBytes += chunk.length;
    if (this.#movedBytes >= this.#progress.receivedBytesMin) {
      this.#stalled.refresh();
      this.#movedBytes = 0;
    }
    this.#hash.update(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#announced.bytes) done(null, chunk);
    else this.#end(done, chunk);
    // Until somebody asks for more.
    if (this.readableLength > 0) this.#place?.rest();
  }

  override _flush(done: TransformCallback): void {
    if (this.isComplete) done();
    else if (this.#announced.bytes === 0) this.#end(done);
    else done(invalidRequest("body", "The body is shorter than its Content-Length."));
  }

  #end(done: TransformCallback, last?: Buffer): void {
    clearTimeout(this.#stalled);
    const came = this.#hash.digest();
    this.isComplete = came.equals(this.#announced.sha256);
    if (!this.isComplete) {
      done(
        invalidRequest(
          "header.content-digest",
          `Nothing was stored: the body's digest is ${contentDigest(came)}`,
        ),
      );
      return;
    }
    this.#onComplete();
    done(null, last);
  }

  /** Bytes that wait here are waited for by nobody: whoever keeps them does not take them. */
  #whoStalled(): Error {
    const { progressWithinMs, receivedBytesMin } = this.#progress;
    const seconds = progressWithinMs / 1000;
    if (this.readableLength > 0) return new TemporarilyUnavailable(`nothing was stored for ${seconds} s`);
    return invalidRequest("body", `Fewer than ${receivedBytesMin} bytes came in ${seconds} s.`);
  }
}
