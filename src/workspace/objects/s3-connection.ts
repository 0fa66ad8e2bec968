import { S3Client } from "@aws-sdk/client-s3";
import { ByteBudget } from "./byte-budget.ts";
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
export type Held = { readonly bytes: Uint8Array; readonly letGo: () => void };

/** What memory is for: completes "The object store could not …"; and whose share it is, null: nobody's. */
export type Holding = { readonly asked: string; readonly sharer: string | null };

/** A bucket, and how it is spoken to. */
export class S3 {
  readonly client: S3Client;
  readonly limits: S3Limits;
  readonly #bucket: string;
  readonly #budget: ByteBudget;
  readonly #spare: Uint8Array[] = [];

  constructor(options: S3Options, limits: S3Limits) {
    const { accessKeyId, secretAccessKey } = options;
    this.limits = limits;
    this.#bucket = options.bucket;
    this.#budget = new ByteBudget(limits.heldBytesMax);
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
  async hold(bytes: number, { asked, sharer }: Holding, signal: AbortSignal): Promise<Held> {
    const patience = AbortSignal.timeout(this.limits.heldWaitMs);
    try {
      const letGo = await this.#budget.take(bytes, sharer, AbortSignal.any([signal, patience]));
      return this.#held(bytes, letGo);
    } catch (error) {
      signal.throwIfAborted();
      if (!this.#budget.hasShare({ bytes, sharer })) throw new ObjectShareError(asked);
      const cause = new Error(
        `too many are being stored at once for ${this.limits.heldBytesMax} bytes of memory`,
      );
      throw new ObjectStoreAwayError(asked, Object.assign(cause, { cause: error }));
    }
  }

  /** The same where there is some at once, or null. */
  tryHold(bytes: number, { sharer }: Holding): Held | null {
    const letGo = this.#budget.tryTake(bytes, sharer);
    return letGo && this.#held(bytes, letGo);
  }

  #held(bytes: number, letGo: () => void): Held {
    const spare = bytes === this.limits.partBytes ? this.#spare.pop() : undefined;
    return { bytes: spare ?? Buffer.allocUnsafeSlow(bytes), letGo };
  }
}

/** What one put needs. */
const SPARE_MAX = 2;

const nothing = () => undefined;
/** Warnings of the client's would go to the console. */
const SILENT = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };
