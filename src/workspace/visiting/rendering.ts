import type { Pool } from "pg";
import { Piscina } from "piscina";
import { TemporarilyUnavailable } from "../../api/problems.ts";
import { TtlMap } from "../../model/ttl-map.ts";
import { readVersion } from "../store/page-visits.ts";

/** What a version shows. */
export type ShownVersion = { readonly title: string; readonly html: string };

export type Rendering = {
  /** @throws TemporarilyUnavailable when others are waiting for too much */
  show(accountId: string, versionId: string): Promise<ShownVersion>;
  close(): Promise<void>;
};

/** The worst that was found takes three seconds. */
const RENDERED_WITHIN_MS = 10_000;
const WAITING_MAX = 100;
const THREAD_MIB_MAX = 256;
/** Each of up to 2 MB. */
const REMEMBERED_MAX = 32;
const REMEMBERED_MS = 600_000;
const THREAD_IDLE_MS = 60_000;

/** In one thread of its own, which ends when nobody needs it: no author's text keeps requests waiting. */
export function startRendering(pool: Pool): Rendering {
  const thread = new Piscina<string, string>({
    filename: new URL("./markdown-html.ts", import.meta.url).href,
    name: "renderMarkdown",
    minThreads: 0,
    maxThreads: 1,
    idleTimeout: THREAD_IDLE_MS,
    maxQueue: WAITING_MAX,
    resourceLimits: { maxOldGenerationSizeMb: THREAD_MIB_MAX },
    env: {},
  });
  // Of one that has no task: tasks are told of their own.
  thread.on("error", () => undefined);
  const remembered = new TtlMap<string, Promise<ShownVersion>>({
    entriesMax: REMEMBERED_MAX,
    now: () => performance.now(),
  });

  async function render(accountId: string, versionId: string): Promise<ShownVersion> {
    const { title, markdown } = await readVersion(pool, accountId, versionId);
    const signal = AbortSignal.timeout(RENDERED_WITHIN_MS);
    const html = await thread.run(markdown, { signal }).catch((cause: unknown) => {
      throw new TemporarilyUnavailable("a page could not be rendered in time", { cause });
    });
    return { title, html };
  }

  return {
    show: async (accountId, versionId) => {
      const known = remembered.get(versionId);
      if (known !== undefined) return await known;
      const rendering = render(accountId, versionId);
      remembered.set(versionId, rendering, REMEMBERED_MS);
      // The next one tries again.
      rendering.catch(() => remembered.delete(versionId));
      return await rendering;
    },
    close: () => thread.destroy(),
  };
}
