// Debian's Chromium, driven from outside.
import { existsSync } from "node:fs";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";

const CHROMIUM = "/usr/bin/chromium";

/** Where there is none, tests that need one are skipped and say so. */
export const HAS_BROWSER = existsSync(CHROMIUM);

export type TestBrowser = {
  /** A viewer of his own: no cookie is shared. What breaks a page's policy, or fails in its script, is an error. */
  newViewer(options?: Parameters<Browser["newContext"]>[0]): Promise<Viewer>;
  close(): Promise<void>;
};

export type Viewer = {
  readonly context: BrowserContext;
  readonly page: Page;
  /** What pages complained of so far. */
  readonly complaints: string[];
};

export async function startBrowser(): Promise<TestBrowser> {
  // As root Chromium has no sandbox; all that it opens is our own, on loopback.
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu"],
  });
  return {
    newViewer: async (options = {}) => {
      const context = await browser.newContext(options);
      const page = await context.newPage();
      const complaints: string[] = [];
      page.on("console", (message) => {
        if (message.type() === "error") complaints.push(message.text());
      });
      page.on("pageerror", (error) => complaints.push(error.message));
      return { context, page, complaints };
    },
    close: () => browser.close(),
  };
}
