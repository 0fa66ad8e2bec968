import { createHash } from "node:crypto";
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { Pool } from "pg";
import { storageRefusalOf } from "../../base/database/storage.ts";
import { AccountPlaces } from "../../base/model/account-places.ts";
import { TtlMap } from "../../base/model/caches.ts";
import { ANSWER_WITHIN_MS } from "../../http/limits.ts";
import { TemporarilyUnavailable } from "../../http/problems.ts";
import { createTurns } from "../../http/turns.ts";
import { type OpenedLink, readVersion, storeHtml } from "../store/page-links.ts";

/** A long chapter takes a tenth of a second, and the worst of the same length three. */
const PUBLISHED_WITHIN_MS = 2_000;
/** It was published in much less. */
const RENEWED_WITHIN_MS = 10_000;
/** One for whoever comes, the other for accounts whose texts have taken little lately. */
const THREADS_MAX = 2;
const LIGHT_MS = 250;
/** What the slowest texts take. Of accounts that come at once, those with short texts do not wait for all long ones. */
const MS_PER_BYTE = 0.01;
const THREAD_MIB_MAX = 256;
/** Texts that took too much, which would again. Not for long: it may have been a bad day's fault. */
const TOO_HEAVY_MAX = 1_000;
const TOO_HEAVY_MS = 60_000;

/**
 * The next one with every change of markdown-html.ts, of markdown-it or of sanitize-html: what an older one has made is
 * not shown any more, but rendered again.
 */
export const RENDERER = 1;

export type Rendering = ReturnType<typeof createRendering>;

/**
 * Renders when a version is published, and once more for each newer renderer: visits read what is stored. Accounts, and
 * their users, have their shares of the threads, so that no account's texts keep another's pages waiting.
 */
export function createRendering(pool: Pool) {
  const places = new AccountPlaces({ placesMax: THREADS_MAX, lightMs: LIGHT_MS });
  const inTurn = createTurns(places, "a page to be rendered");
  const tooHeavy = new TtlMap<string, true>(TOO_HEAVY_MAX);

  /** Null: the text takes too much. @param rendered what was rendered meanwhile; null: it was not */
  async function render(
    sharer: string,
    markdown: string,
    { withinMs, gone }: { readonly withinMs: number; readonly gone: AbortSignal },
    rendered: () => Promise<string | null> = async () => null,
  ): Promise<string | null> {
    const digest = createHash("sha256").update(markdown).digest("base64");
    if (tooHeavy.has(digest)) return null;
    const expectedMs = Buffer.byteLength(markdown) * MS_PER_BYTE;
    return await inTurn(sharer, { waitMs: ANSWER_WITHIN_MS, gone, expectedMs }, async () => {
      const html = (await rendered()) ?? (await renderInThread(markdown, withinMs));
      if (html === null) tooHeavy.set(digest, true, TOO_HEAVY_MS);
      return html;
    });
  }

  return {
    /**
     * HTML of a text that is to be published. Null: it takes too much to be rendered on a day that is worse than today.
     * @param gone aborted when nobody waits for it any more
     * @throws TemporarilyUnavailable when its turn does not come in time
     */
    render: (sharer: string, markdown: string, gone: AbortSignal) =>
      render(sharer, markdown, { withinMs: PUBLISHED_WITHIN_MS, gone }),
    /**
     * HTML of a version that an older renderer has rendered, which is stored for whoever comes next.
     * @throws TemporarilyUnavailable when it takes too much, or its turn does not come in time
     */
    async renew({ accountId, versionId }: OpenedLink, markdown: string, gone: AbortSignal): Promise<string> {
      // Whoever was before may have come for the same page.
      const renewed = async () => (await readVersion(pool, accountId, versionId, RENDERER))!.html;
      const bounds = { withinMs: RENEWED_WITHIN_MS, gone };
      const html = await render(accountId, markdown, bounds, renewed);
      if (html === null) throw new TemporarilyUnavailable("a page could not be rendered in time");
      await storeHtml(pool, accountId, versionId, html, RENDERER).catch((error: unknown) => {
        // It is longer now than the account may store: the next visit renders it again.
        if (storageRefusalOf(error) === null) throw error;
      });
      return html;
    },
  };
}

/** Threads without a text: to start one takes longer than most texts. */
const idle: Worker[] = [];

/**
 * In a thread of its own: some texts would keep requests waiting for minutes. Null: it takes too long, too much memory,
 * or becomes too large.
 */
async function renderInThread(markdown: string, withinMs: number): Promise<string | null> {
  const thread = idle.pop() ?? (await startThread());
  try {
    thread.postMessage(markdown);
    const [html] = await once(thread, "message", { signal: AbortSignal.timeout(withinMs) });
    idle.push(thread);
    return html;
  } catch {
    await thread.terminate();
    return null;
  }
}

async function startThread(): Promise<Worker> {
  const thread = new Worker(new URL("./render-thread.ts", import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: THREAD_MIB_MAX },
    env: {},
  });
  thread.unref();
  // Told to whoever waits for it.
  thread.on("error", () => undefined);
  await once(thread, "message");
  return thread;
}
