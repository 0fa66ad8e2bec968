import type { Pool } from "pg";
import { Piscina } from "piscina";
import { TemporarilyUnavailable } from "../../api/problems.ts";
import { TtlMap } from "../../model/ttl-map.ts";
import { readVersion } from "../store/page-visits.ts";
import { createTurns } from "./turns.ts";

/** What a version shows. */
export type ShownVersion = { readonly title: string; readonly html: string };

export type Rendering = {
  /** @throws TemporarilyUnavailable when it takes too much, or too many are waiting */
  show(accountId: string, versionId: string): Promise<ShownVersion>;
  /**
   * Whether this text can be shown to whoever opens it, on a day that is worse than today.
   * @throws TemporarilyUnavailable when too many are waiting
   */
  canShow(accountId: string, markdown: string): Promise<boolean>;
  close(): Promise<void>;
};

/** A long chapter takes a tenth of a second, and the worst of the same length three. */
const PUBLISHED_WITHIN_MS = 2_000;
/** It was published in much less. */
const SHOWN_WITHIN_MS = 10_000;
/** Visitors of all pages, and their authors. */
const WAITING_MAX = 100;
const THREAD_MIB_MAX = 256;
/** Each of up to HTML_CHARS_MAX. */
const REMEMBERED_MAX = 32;
const REMEMBERED_MS = 600_000;
const THREAD_IDLE_MS = 60_000;

/**
 * In one thread of its own, which ends when nobody needs it: no author's text keeps requests waiting. Accounts take
 * turns, so that no author's texts keep another's pages waiting for more than one of them.
 */
export function startRendering(pool: Pool): Rendering {
  const thread = new Piscina<string, string>({
    filename: new URL("./markdown-html.ts", import.meta.url).href,
    name: "renderMarkdown",
    minThreads: 0,
    maxThreads: 1,
    idleTimeout: THREAD_IDLE_MS,
    resourceLimits: { maxOldGenerationSizeMb: THREAD_MIB_MAX },
    env: {},
  });
  // Of one that has no task: tasks are told of their own.
  thread.on("error", () => undefined);
  const takeTurn = createTurns({ name: "pages to be rendered", atOnceMax: 1, waitingMax: WAITING_MAX });
  const remembered = new TtlMap<string, Promise<ShownVersion>>({
    entriesMax: REMEMBERED_MAX,
    now: () => performance.now(),
  });

  /** Rejects for whatever is wrong with the text: it takes too long, too much memory, or becomes too large. */
  async function render(markdown: string, withinMs: number): Promise<string> {
    return await thread.run(markdown, { signal: AbortSignal.timeout(withinMs) });
  }

  /** A thread that has to start takes a while, which is no text's fault. */
  async function waitForThread(): Promise<void> {
    await thread.run("");
  }

  async function showNow(accountId: string, versionId: string): Promise<ShownVersion> {
    const { title, markdown } = await readVersion(pool, accountId, versionId);
    await waitForThread();
    const html = await render(markdown, SHOWN_WITHIN_MS).catch((cause: unknown) => {
      throw new TemporarilyUnavailable("a page could not be rendered in time", { cause });
    });
    return { title, html };
  }

  return {
    show: async (accountId, versionId) => {
      const known = remembered.get(versionId);
      if (known !== undefined) return await known;
      const showing = takeTurn(accountId, () => showNow(accountId, versionId));
      remembered.set(versionId, showing, REMEMBERED_MS);
      // The next one tries again.
      showing.catch(() => remembered.delete(versionId));
      return await showing;
    },
    // In turns of its own: an account's visitors do not keep its authors waiting.
    canShow: async (accountId, markdown) =>
      await takeTurn(`author:${accountId}`, async () => {
        await waitForThread();
        return await render(markdown, PUBLISHED_WITHIN_MS).then(
          () => true,
          () => false,
        );
      }),
    close: () => thread.destroy(),
  };
}
