import { createHash } from "node:crypto";
import type { Pool } from "pg";
import { Piscina } from "piscina";
import { AccountPlaces } from "../../base/model/account-places.ts";
import { TtlMap } from "../../base/model/caches.ts";
import { escapeHtml, type HtmlPage } from "../../http/html-page.ts";
import { ANSWER_WITHIN_MS } from "../../http/limits.ts";
import { TemporarilyUnavailable } from "../../http/problems.ts";
import { createTurns } from "../../http/turns.ts";
import { type OpenedLink, readVersion } from "../store/page-links.ts";

/** A page's own: its title, and what its Markdown says. */
export function shownPage({ title, html }: ShownVersion): HtmlPage {
  return { title, body: `<main>\n<h1>${escapeHtml(title)}</h1>\n${html}</main>` };
}

export const UNKNOWN_LINK = note(
  "There is no such page",
  "Check that you have the whole link. If you have, ask whoever gave it to you for another one.",
);

/** Nobody is told why. */
export const LINK_OVER = note(
  "This link does not work any more",
  "It has expired, was opened as often as it may be, or was withdrawn. Ask whoever gave it to you for another one.",
);

export const NOT_AHEAD = note(
  "This page is not loaded ahead",
  "Every time that it is opened counts. Open it once you want to read it.",
);

/** @param fault what was wrong with the password that was sent; null: none was sent */
export function passwordForm(fault: string | null): HtmlPage {
  const title = "This page asks for a password";
  const told = fault === null ? "" : `<p id="fault" role="alert">${escapeHtml(fault)}</p>\n`;
  const described = fault === null ? "" : ' aria-describedby="fault"';
  // Without an action a form is sent to its own page.
  const form = `<form method="post">
<p><label for="password">Password</label><br>
<input id="password" name="password" type="password" required autofocus autocomplete="current-password"${described}>
<button type="submit">Open</button></p>
</form>`;
  return { title, body: `<main>\n<h1>${title}</h1>\n${told}${form}\n</main>` };
}

/** A page of one sentence or two. */
export function note(title: string, text: string): HtmlPage {
  return { title, body: `<main>\n<h1>${escapeHtml(title)}</h1>\n<p>${escapeHtml(text)}</p>\n</main>` };
}

/** What a version shows. */
export type ShownVersion = { readonly title: string; readonly html: string };

type ShownLink = Pick<OpenedLink, "accountId" | "versionId" | "versionBytes">;

export type Rendering = {
  /**
   * @param gone aborted when nobody waits for it any more
   * @throws TemporarilyUnavailable when it takes too much, or its turn does not come in time
   */
  show(link: ShownLink, gone: AbortSignal): Promise<ShownVersion>;
  /**
   * Whether this text can be shown to whoever opens it, on a day that is worse than today.
   * @throws TemporarilyUnavailable when its turn does not come in time
   */
  canShow(accountId: string, markdown: string, gone: AbortSignal): Promise<boolean>;
  close(): Promise<void>;
};

/** A long chapter takes a tenth of a second, and the worst of the same length three. */
const PUBLISHED_WITHIN_MS = 2_000;
/** It was published in much less. */
const SHOWN_WITHIN_MS = 10_000;
/** One for whoever comes, the other for accounts whose pages have taken little lately. */
const THREADS_MAX = 2;
const LIGHT_MS = 250;
/** What the slowest texts take. Of accounts that come at once, those with short texts do not wait for all long ones. */
const MS_PER_BYTE = 0.01;
const THREAD_MIB_MAX = 256;
/** Each of up to HTML_CHARS_MAX. */
const REMEMBERED_MAX = 32;
const REMEMBERED_MS = 600_000;
/** Texts that took too much, which would again. Not for long: it may have been a bad day's fault. */
const TOO_HEAVY_MAX = 1_000;
const TOO_HEAVY_MS = 60_000;
const THREAD_IDLE_MS = 60_000;

/**
 * In threads of its own, which end when nobody needs them: no author's text keeps requests waiting. Accounts have their
 * shares of them, visitors and authors together, so that no account's texts keep another's pages waiting.
 */
export function startRendering(pool: Pool): Rendering {
  const thread = new Piscina<string, string>({
    filename: new URL("./markdown-html.ts", import.meta.url).href,
    name: "renderMarkdown",
    minThreads: 0,
    maxThreads: THREADS_MAX,
    idleTimeout: THREAD_IDLE_MS,
    resourceLimits: { maxOldGenerationSizeMb: THREAD_MIB_MAX },
    env: {},
  });
  // Of one that has no task: tasks are told of their own.
  thread.on("error", () => undefined);
  const places = new AccountPlaces({ placesMax: THREADS_MAX, lightMs: LIGHT_MS });
  const inTurn = createTurns(places, "a page to be rendered");
  const turnOf = (bytes: number, gone: AbortSignal) => ({
    waitMs: ANSWER_WITHIN_MS,
    gone,
    expectedMs: bytes * MS_PER_BYTE,
  });
  const now = () => performance.now();
  const remembered = new TtlMap<string, ShownVersion>({ entriesMax: REMEMBERED_MAX, now });
  const tooHeavy = new TtlMap<string, unknown>({ entriesMax: TOO_HEAVY_MAX, now });

  /** Rejects for whatever is wrong with the text: it takes too long, too much memory, or becomes too large. */
  async function render(markdown: string, withinMs: number): Promise<string> {
    return await thread.run(markdown, { signal: AbortSignal.timeout(withinMs) });
  }

  /** A thread that has to start takes a while, which is no text's fault. */
  async function waitForThread(): Promise<void> {
    await thread.run("");
  }

  async function showNow(accountId: string, versionId: string): Promise<ShownVersion> {
    // Whoever was before may have come for the same page.
    const known = remembered.get(versionId);
    if (known !== undefined) return known;
    refuseHeavy(versionId);
    const { title, markdown } = await readVersion(pool, accountId, versionId);
    await waitForThread();
    const html = await render(markdown, SHOWN_WITHIN_MS).catch((cause: unknown) => {
      tooHeavy.set(versionId, cause, TOO_HEAVY_MS);
      throw notInTime(cause);
    });
    remembered.set(versionId, { title, html }, REMEMBERED_MS);
    return { title, html };
  }

  function refuseHeavy(versionId: string): void {
    if (tooHeavy.has(versionId)) throw notInTime(tooHeavy.get(versionId));
  }

  return {
    show: async ({ accountId, versionId, versionBytes }, gone) => {
      const known = remembered.get(versionId);
      if (known !== undefined) return known;
      refuseHeavy(versionId);
      return await inTurn(accountId, turnOf(versionBytes, gone), () => showNow(accountId, versionId));
    },
    canShow: async (accountId, markdown, gone) => {
      const digest = createHash("sha256").update(markdown).digest("base64");
      if (tooHeavy.has(digest)) return false;
      return await inTurn(accountId, turnOf(Buffer.byteLength(markdown), gone), async () => {
        await waitForThread();
        try {
          await render(markdown, PUBLISHED_WITHIN_MS);
          return true;
        } catch (error) {
          tooHeavy.set(digest, error, TOO_HEAVY_MS);
          return false;
        }
      });
    },
    close: () => thread.destroy(),
  };
}

function notInTime(cause: unknown): TemporarilyUnavailable {
  return new TemporarilyUnavailable("a page could not be rendered in time", { cause });
}
