import {
  type $Command,
  S3Client,
  type S3ClientResolvedConfig,
  S3ServiceException,
  type ServiceInputTypes,
  type ServiceOutputTypes,
} from "@aws-sdk/client-s3";
import type { S3Address } from "../../base/config/kinds.ts";
import { AccountPlaces, type Place } from "../../base/model/account-places.ts";
import { NEVER, unlessAborted } from "./body-reader.ts";
import {
  ObjectNotFoundError,
  ObjectRangeError,
  ObjectShareError,
  ObjectStoreAwayError,
} from "./object-store.ts";

const MEBIBYTE = 1_024 * 1_024;

/** What one process allows itself with S3. */
export type S3Limits = { readonly [Name in keyof typeof s3Limits]: number };

export const s3Limits = {
  /** For TCP and TLS. */
  connectMs: 5_000,
  /** From a request's first byte to the head of its answer: at a part's size, 2.2 Mbit/s. */
  answerMs: 30_000,
  /** For one call with all its attempts and its whole answer, but for an object's body. */
  callMs: 75_000,
  /** For putting an object together from its parts, less than an upload's end may take. */
  completeMs: 100_000,
  /** For cleaning up after an upload that failed or was aborted, before its caller is told. */
  cleanupMs: 5_000,
  /** How long somebody waits for the next bytes of an object. While nobody asks for them, time does not count. */
  stallMs: 30_000,
  /** Of one call. What S3 answers with 500, 503 and 429, and broken connections, are tried again after a pause. */
  attemptsMax: 3,
  /** Each object that is being read holds one for as long as its reader takes. */
  connectionsMax: 1_024,
  /** Held in memory until S3 has it, because a part is sent again when it fails. S3 takes 5 MiB or more. */
  partBytes: 5 * MEBIBYTE,
  /**
   * For parts of all puts together, a quarter of it for one account: a put holds one from its start to its end. The
   * option that lost reads the next part while one is sent: twice the memory for uploads that are slower than S3.
   */
  heldBytesMax: 160 * MEBIBYTE,
  /** Of these, for accounts that store nothing yet: twenty parts. */
  keptBytes: 100 * MEBIBYTE,
  /** While all memory is held, a put whose body comes more slowly makes room for an account that has none. */
  movingBytesPerSecond: 65_536,
  /** How long a put waits for its place among them: less than its request has until its body is wanted. */
  heldWaitMs: 2_500,
  /** What S3 copies in a call, within `answerMs`; its own limit is 5 GB. */
  copyPartBytes: 256 * MEBIBYTE,
  /** Of one copy at a time. */
  copyPartsAtOnce: 4,
} as const satisfies Record<string, number>;

type S3Call = {
  /** Completes the sentence "The object store could not …". */
  readonly asked: string;
  /** Whose absence, or end, a refusal is about. */
  readonly key?: string;
  /** Where the range begins that is asked for. */
  readonly start?: number | undefined;
  /** Absent: as long as any call. */
  readonly deadlineMs?: number;
  /** From its first byte to the head of its answer; absent: as long as any request. */
  readonly answerMs?: number;
  /** Absent: a call that decides whether a put is stored, and is not given up half-way. */
  readonly signal?: AbortSignal;
};

/** A proxy's page may say 200, too; S3 names what it has stored, copied, or reads. */
export function requireETag(answer: { readonly ETag?: string | undefined } | undefined, asked: string): void {
  if (answer?.ETag === undefined)
    throw new ObjectStoreAwayError(asked, new Error("the server that answered is not S3"));
}

const NOT_THERE = new Set(["NoSuchKey", "NotFound", "NoSuchUpload"]);

function storeErrorOf(error: unknown, { asked, key, start }: S3Call): Error {
  const cause = withoutSecrets(error);
  if (key !== undefined && error instanceof S3ServiceException) {
    if (NOT_THERE.has(error.name)) return new ObjectNotFoundError(key, { cause });
    if (error.name === "InvalidRange") return new ObjectRangeError(key, start ?? 0, { cause });
  }
  return new ObjectStoreAwayError(asked, cause);
}

/** What S3 answers to a wrong key names the key and the signature, in fields that a log would show. */
export function withoutSecrets(error: unknown): Error {
  if (!(error instanceof Error)) return new Error("an unknown failure");
  if (error instanceof S3ServiceException) {
    const { httpStatusCode, requestId } = error.$metadata;
    const plain = new Error(`S3 answered ${httpStatusCode}, ${error.name}: ${error.message}`);
    return Object.assign(plain, { requestId });
  }
  const { code } = error as NodeJS.ErrnoException;
  return Object.assign(new Error(error.message), code === undefined ? {} : { code });
}

export type S3Options = S3Address & { readonly accessKeyId: string; readonly secretAccessKey: string };

/** Memory that parts are read into, until it is disposed of. */
export type Held = Disposable & {
  readonly bytes: Uint8Array;
  readonly place: Place;
  /** Also aborted when the memory is another's, because too little came. */
  readonly signal: AbortSignal;
};

/** A bucket, and how it is spoken to. */
export class S3 {
  readonly client: S3Client;
  readonly limits: S3Limits;
  readonly #bucket: string;
  readonly #memory: AccountPlaces;

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
        // Of a socket that is idle: while an object is read, it is when its reader is slow. `s3Body` looks at that.
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

  /** Sends one request, with the retries that the client makes. @throws what the port knows, and nothing else */
  async send<Input extends ServiceInputTypes, Output extends ServiceOutputTypes>(
    command: $Command<Input, Output, S3ClientResolvedConfig>,
    call: S3Call,
  ): Promise<Output> {
    const { signal = NEVER, deadlineMs = this.limits.callMs, answerMs } = call;
    signal.throwIfAborted();
    const late = AbortSignal.timeout(deadlineMs);
    const abortSignal = AbortSignal.any([signal, late]);
    const options = { abortSignal, ...(answerMs !== undefined && { requestTimeout: answerMs }) };
    try {
      // The client does not look at the signal while it pauses before a retry.
      return await unlessAborted(() => this.client.send(command, options), abortSignal);
    } catch (error) {
      signal.throwIfAborted();
      throw storeErrorOf(late.aborted ? new Error(`no answer within ${deadlineMs} ms`) : error, call);
    }
  }

  /**
   * Memory for a put, as soon as there is some.
   * @param asked completes "The object store could not …" @param sharer whose share it is
   * @throws ObjectShareError, ObjectStoreAwayError
   */
  async hold(bytes: number, asked: string, sharer: string, signal: AbortSignal): Promise<Held> {
    const cut = new AbortController();
    const slow = new Error("its body came too slowly while others waited for memory");
    const onCut = () => cut.abort(new ObjectStoreAwayError(asked, slow));
    try {
      const ended = AbortSignal.any([signal, AbortSignal.timeout(this.limits.heldWaitMs)]);
      const place = await this.#memory.take(sharer, { places: Math.max(1, bytes), onCut }, ended);
      // Until it is filled.
      place.rest();
      return {
        bytes: Buffer.allocUnsafeSlow(bytes),
        place,
        signal: AbortSignal.any([signal, cut.signal]),
        [Symbol.dispose]: place.giveBack,
      };
    } catch (error) {
      signal.throwIfAborted();
      if (this.#memory.held(sharer) > 0) throw new ObjectShareError(asked);
      const found = `too many are being stored at once for ${this.limits.heldBytesMax} bytes of memory`;
      throw new ObjectStoreAwayError(asked, new Error(found, { cause: error }));
    }
  }
}

const nothing = () => undefined;
/** Warnings of the client's would go to the console. */
const SILENT = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };
