import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { type Readable, Transform } from "node:stream";
import type { Place } from "../base/model/account-places.ts";
import { receiveByProgress, sendContinue } from "./connections.ts";
import { contentDigest } from "./content-answer.ts";
import type { TransferLimits } from "./limits.ts";
import type { AnnouncedBody } from "./operation.ts";
import { invalidRequest, Problem, TemporarilyUnavailable } from "./problems.ts";

/** How many bytes have to come within which time, but for the last. */
export type BodyProgress = Pick<TransferLimits, "progressWithinMs" | "receivedBytesMin">;

/** What is told of bytes that come, and of when nobody takes them. */
type MovingPlace = Pick<Place, "moved" | "rest">;

export type IncomingBody = ReturnType<typeof createIncomingBody>;

/** A streamed body on its way from the connection to its operation: a ReceivedBody. */
export function createIncomingBody(
  request: IncomingMessage,
  announced: AnnouncedBody,
  progress: BodyProgress,
) {
  const { mediaType, bytes, sha256 } = announced;
  const { promise: opened, resolve: tellOpened } = Promise.withResolvers<void>();
  const { promise: complete, resolve: tellComplete } = Promise.withResolvers<void>();
  let isComplete = false;
  let checked: Transform | null = null;
  let isClosed = false;
  let place: MovingPlace | null = null;
  let cutBy: Problem | TemporarilyUnavailable | null = null;

  function open(): Readable {
    if (checked !== null) throw new Error("A body is read once.");
    if (isClosed) throw cutBy ?? new Error("The request is over.");
    const checking = checkBytes(announced, progress, place, () => {
      isComplete = true;
      tellComplete();
    });
    checked = checking;
    tellOpened();
    const goneAway = () => {
      if (request.readableEnded) return;
      checking.destroy(invalidRequest("body", "The connection ended before the body did."));
    };
    request.once("close", goneAway);
    request.once("error", goneAway);
    checking.once("close", () => {
      request.off("close", goneAway);
      // Not destroyed with it: that would take the connection from under the answer.
      request.unpipe(checking);
    });
    if (request.destroyed) goneAway();
    receiveByProgress(request);
    sendContinue(request);
    return request.pipe(checking);
  }

  return {
    ...announced,
    /** What makes it the same body when it comes again. */
    announced: { mediaType, bytes, digest: contentDigest(sha256) },
    open,
    /** Resolves when somebody begins to take it. */
    opened,
    /** Resolves when every byte has come and the digest is right. */
    complete,
    get isComplete() {
      return isComplete;
    },
    /** Why it did not arrive; null: it did, or nobody took all of it. */
    get failure(): Error | null {
      const error = checked?.errored ?? cutBy;
      return error instanceof Problem || error instanceof TemporarilyUnavailable ? error : null;
    },
    /** Its bytes move for this place, from when it is opened. */
    movesFor(given: MovingPlace): void {
      place = given;
      given.rest();
    },
    /** Its place is another's, or it may not go on, whether somebody has begun to take it or not. */
    cut(reason: Problem | TemporarilyUnavailable): void {
      isClosed = true;
      cutBy = reason;
      checked?.destroy(reason);
    },
    /** Nobody wants more of it. */
    close(): void {
      isClosed = true;
      checked?.destroy();
    },
  };
}

/** Passes bytes on, the last of them only when all have come and their digest is the announced one. */
function checkBytes(
  announced: AnnouncedBody,
  { progressWithinMs, receivedBytesMin }: BodyProgress,
  place: MovingPlace | null,
  onComplete: () => void,
): Transform {
  const hash = createHash("sha256");
  let bytesLeft = announced.bytes;
  /** Since the time began anew. */
  let movedBytes = 0;

  const checked: Transform = new Transform({
    read(size) {
      place?.moved(0);
      Transform.prototype._read.call(checked, size);
    },
    transform(chunk: Buffer, _encoding, done) {
      place?.moved(chunk.length);
      movedBytes += chunk.length;
      if (movedBytes >= receivedBytesMin) {
        stalled.refresh();
        movedBytes = 0;
      }
      hash.update(chunk);
      bytesLeft -= chunk.length;
      done(bytesLeft > 0 ? null : mistake(), chunk);
      // Until somebody asks for more.
      if (checked.readableLength > 0) place?.rest();
    },
    flush(done) {
      if (announced.bytes === 0) done(mistake());
      else
        done(bytesLeft > 0 ? invalidRequest("body", "The body is shorter than its Content-Length.") : null);
    },
  });
  const stalled = setTimeout(() => checked.destroy(whoStalled()), progressWithinMs);
  checked.once("close", () => clearTimeout(stalled));
  // Whoever reads it sees the error; nobody does when it fails after its reader has.
  checked.on("error", () => undefined);
  return checked;

  /** Of a body that has come whole; null: there is none. */
  function mistake(): Problem | null {
    clearTimeout(stalled);
    const came = hash.digest();
    if (!came.equals(announced.sha256)) {
      const message = `Nothing was stored: the body's digest is ${contentDigest(came)}`;
      return invalidRequest("header.content-digest", message);
    }
    onComplete();
    return null;
  }

  /** Bytes that wait here are waited for by nobody: whoever keeps them does not take them. */
  function whoStalled(): Error {
    const seconds = progressWithinMs / 1000;
    if (checked.readableLength > 0) return new TemporarilyUnavailable(`nothing was stored for ${seconds} s`);
    return invalidRequest("body", `Fewer than ${receivedBytesMin} bytes came in ${seconds} s.`);
  }
}
