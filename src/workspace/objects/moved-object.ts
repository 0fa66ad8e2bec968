import { ObjectNotFoundError } from "./object-errors.ts";

/**
 * Reads an object that may be moved between the reading of its row and its own: then the row says where it is now.
 * @param key what the row said
 * @param findKey what the row says now; null: there is no row any more
 * @throws ObjectNotFoundError: it is not where its row says
 */
export async function readMovedObject<T>(
  key: string,
  read: (key: string) => Promise<T>,
  findKey: () => Promise<string | null>,
): Promise<T> {
  for (let keyNow = key; ; ) {
    try {
      return await read(keyNow);
    } catch (error) {
      if (!(error instanceof ObjectNotFoundError)) throw error;
      const found = await findKey();
      if (found === null || found === keyNow) throw error;
      keyNow = found;
    }
  }
}
