import type { ObjectStore } from "./object-store.ts";

/**
 * A store that is opened when it is first asked for something: who keeps no documents needs none. If that fails, the
 * next one to ask tries again.
 */
export function openedLater(open: () => Promise<ObjectStore>): ObjectStore {
  let opening: Promise<ObjectStore> | null = null;
  const opened = () => {
    opening ??= open().catch((error: unknown) => {
      opening = null;
      throw error;
    });
    return opening;
  };
  return {
    put: async (...args) => (await opened()).put(...args),
    get: async (...args) => (await opened()).get(...args),
    copy: async (...args) => (await opened()).copy(...args),
    remove: async (...args) => (await opened()).remove(...args),
    stat: async (...args) => (await opened()).stat(...args),
    list: async function* (...args) {
      yield* (await opened()).list(...args);
    },
    removeLeftovers: async (...args) => (await opened()).removeLeftovers(...args),
    check: async (...args) => (await opened()).check(...args),
    close: async () => {
      const store = await opening?.catch(() => null);
      await store?.close();
    },
  };
}
