import { S3Client } from "@aws-sdk/client-s3";
import { AccountPlaces, type AskedPlaces, type Place } from "../../model/account-places.ts";
import { ObjectShareError, ObjectStoreAwayError } from "./object-errors.ts";
import { callS3, type S3Call } from "./s3-calls.ts";
import type { S3Limits } from "./s3-limits.ts";

export type S3Options = {
  readonly bucket: string;
  /** Null: Amazon's own in the region. */
  readonly endpoint: string | null;
  readonly region: string;
  readonly isPathStyle: boolean;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
};

/** A memory that a part is read into, until it is let go; that once more does nothing. */
export type Held = { readonly bytes: Uint8Array; readonly place: Place; readonly letGo: () => void };

/** What memory is for: completes "The object store could not …"; and whose share it is. */
export type Holding = {
  readonly asked: string;
  readonly sharer: string;
  /** Ends it: its memory is another's, because too little came. */
  readonly onCut: (error: ObjectStoreAwayError) => void;
};

/** A bucket, and how it is spoken to. */
export class S3 {
  readonly client: S3Client;
  readonly limits: S3Limits;
  readonly #bucket: string;
  readonly #memory: AccountPlaces;
  readonly #spare: Uint8Array[] = [];

  constructor(options: S3Options, limits: S3Limits) {
    const { accessKeyId, secretAccessKey } = options;
    this.limits = limits;
    this.#bucket = options.bucket;
    const { heldBytesMax: placesMax, keptBytes, movingBytesPerSecond } = limits;
    const keptPlaces = Math.min(keptBytes, Math.floor((placesMax * 5) / 8));
    this.#memory = new AccountPlaces({ placesMax, keptPlaces, movingBytesPerSecond });
    const agent = { maxSockets: limits.connectionsMax };
    this.client = new S3Client({
      region: options.region,
      ...(options.endpoint === null ? {} : { endpoint: options.endpoint }),
      forcePathStyle: options.isPathStyle,
      credentials: { accessKeyId, secretAccessKey },
      maxAttempts: limits.attemptsMax,
      retryMode: "standard",
      // Of each part and of whole objects: told to S3 when they are stored, and compared when they are read.
      requestChecksumCalculation: "WHEN_SUPPORTED",
      responseChecksumValidation: "WHEN_SUPPORTED",
      logger: SILENT,
      requestHandler: {
        connectionTimeout: limits.connectMs,
        requestTimeout: limits.answerMs,
        throwOnRequestTimeout: true,
        // Of a socket that is idle: while an object is read, it is when its reader is slow. s3-body.ts looks at that.
        socketTimeout: 0,
        httpAgent: agent,
        httpsAgent: agent,
        logger: SILENT,
      },
    });
  }

  target(key: string): { readonly Bucket: string; readonly Key: string } {
    return { Bucket: this.#bucket, Key: key };
  }

  get bucket(): { readonly Bucket: string } {
    return { Bucket: this.#bucket };
  }

  async call<T>(call: Omit<S3Call<T>, "deadlineMs"> & { readonly deadlineMs?: number }): Promise<T> {
    return await callS3({ deadlineMs: this.limits.callMs, ...call });
  }

  /** Takes memory back that S3 has got whole, for the next part: otherwise much of it waits for the collector. */
  reuse(bytes: Uint8Array): void {
    if (bytes.length === this.limits.partBytes && this.#spare.length < SPARE_MAX) this.#spare.push(bytes);
  }

  /** Memory for a part, as soon as there is some. @throws ObjectShareError, ObjectStoreAwayError */
  async hold(bytes: number, to: Holding, signal: AbortSignal): Promise<Held> {
    const { asked, sharer } = to;
    const patience = AbortSignal.timeout(this.limits.heldWaitMs);
    try {
      const ended = AbortSignal.any([signal, patience]);
      return this.#held(bytes, await this.#memory.take(sharer, placesOf(bytes, to), ended));
    } catch (error) {
      signal.throwIfAborted();
      if (this.#memory.held(sharer) > 0) throw new ObjectShareError(asked);
      const cause = new Error(
        `too many are being stored at once for ${this.limits.heldBytesMax} bytes of memory`,
      );
      throw new ObjectStoreAwayError(asked, Object.assign(cause, { cause: error }));
    }
  }

  /** The same where there is some at once, or null. */
  tryHold(bytes: number, to: Holding): Held | null {
    const place = this.#memory.tryTake(to.sharer, placesOf(bytes, to));
    return place && this.#held(bytes, place);
  }

  #held(bytes: number, place: Place): Held {
    // Until it is filled.
    place.rest();
    const spare = bytes === this.limits.partBytes ? this.#spare.pop() : undefined;
    return { bytes: spare ?? Buffer.allocUnsafeSlow(bytes), place, letGo: place.giveBack };
  }
}

function placesOf(bytes: number, { asked, onCut }: Holding): AskedPlaces {
  const cause = new Error("its body came too slowly while others waited for memory");
  return { places: Math.max(1, bytes), onCut: () => onCut(new ObjectStoreAwayError(asked, cause)) };
}

/** What one put needs. */
const SPARE_MAX = 2;

const nothing = () => undefined;
/** Warnings of the client's would go to the console. */
const SILENT = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };
