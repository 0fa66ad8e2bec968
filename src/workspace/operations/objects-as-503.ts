import { TemporarilyUnavailable } from "../../api/problems.ts";
import { ObjectStoreAwayError } from "../objects/object-errors.ts";

/** Passes a result through; when the object store is away, rejects with an error that is answered as 503. */
export async function objectsAs503<T>(
  work: Promise<T>,
  onAway: (error: ObjectStoreAwayError) => void,
): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof ObjectStoreAwayError)) throw error;
    onAway(error);
    throw new TemporarilyUnavailable("the object store is away", { cause: error });
  }
}
