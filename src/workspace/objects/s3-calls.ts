import { S3ServiceException } from "@aws-sdk/client-s3";
import { NEVER, unlessAborted } from "./body-reader.ts";
import { ObjectNotFoundError, ObjectRangeError, ObjectStoreAwayError } from "./object-errors.ts";

export type S3Call<T> = {
  /** Completes the sentence "The object store could not …". */
  readonly asked: string;
  /** Whose absence, or end, a refusal is about. */
  readonly key?: string;
  /** Where the range begins that is asked for. */
  readonly start?: number;
  readonly deadlineMs: number;
  /** Absent: a call that decides whether a put is stored, and is not given up half-way. */
  readonly signal?: AbortSignal;
  readonly send: (options: { readonly abortSignal: AbortSignal }) => Promise<T>;
};

/** Sends one request, with the retries that the client makes. @throws what the port knows, and nothing else */
export async function callS3<T>(call: S3Call<T>): Promise<T> {
  const { signal = NEVER, deadlineMs } = call;
  signal.throwIfAborted();
  const ended = new AbortController();
  const stop = () => ended.abort(signal.reason);
  const timer = setTimeout(() => ended.abort(new Error(`no answer within ${deadlineMs} ms`)), deadlineMs);
  signal.addEventListener("abort", stop, { once: true });
  try {
    // The client does not look at the signal while it pauses before a retry.
    return await unlessAborted(() => call.send({ abortSignal: ended.signal }), ended.signal);
  } catch (error) {
    signal.throwIfAborted();
    throw storeErrorOf(ended.signal.aborted ? ended.signal.reason : error, call);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

/** A proxy's page may say 200, too; S3 names what it has stored, copied, or reads. */
export function requireETag(answer: { readonly ETag?: string | undefined } | undefined, asked: string): void {
  if (answer?.ETag === undefined) throw new ObjectStoreAwayError(asked, new Error("what answered is no S3"));
}

const NOT_THERE = new Set(["NoSuchKey", "NotFound", "NoSuchUpload"]);

function storeErrorOf(error: unknown, { asked, key, start }: S3Call<unknown>): Error {
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
