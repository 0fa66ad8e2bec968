import { RETRY_AFTER_UNAVAILABLE_SECONDS } from "../../api/limits.ts";
import { Problem, TemporarilyUnavailable } from "../../api/problems.ts";
import { ObjectShareError, ObjectStoreAwayError } from "../objects/object-errors.ts";

/**
 * Passes a result through; when the object store is away, rejects with an error that is answered as 503, and when
 * whoever asks has its share of it, with 429.
 */
export async function objectsAs503<T>(
  work: Promise<T>,
  onAway: (error: ObjectStoreAwayError) => void,
): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ObjectShareError) {
      const headers = { "retry-after": String(RETRY_AFTER_UNAVAILABLE_SECONDS) };
      throw new Problem("rate_limited", { headers, cause: error });
    }
    if (!(error instanceof ObjectStoreAwayError)) throw error;
    onAway(error);
    throw new TemporarilyUnavailable("the object store is away", { cause: error });
  }
}
