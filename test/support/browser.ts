// The machine's Chromium, driven from outside.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { program } from "./programs.ts";
import { makeThrowAwayFolder } from "./throw-away-folder.ts";

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

/** As root Chromium has no sandbox; all that it opens is our own, on loopback. */
const launchOptions = () => ({
  executablePath: program("chromium"),
  args: ["--no-sandbox", "--disable-gpu"],
});

export async function startBrowser(): Promise<TestBrowser> {
  const browser = await chromium.launch(launchOptions());
  return {
    newViewer: async (options = {}) => await viewerOf(await browser.newContext(options)),
    close: () => browser.close(),
  };
}

/** A viewer whose browser, which ends with `context`, has these preferences. @param profile as Chromium has them */
export async function startViewer(profile: Readonly<Record<string, unknown>>): Promise<Viewer> {
  const folder = await makeThrowAwayFolder();
  await mkdir(join(folder, "Default"));
  await writeFile(join(folder, "Default", "Preferences"), JSON.stringify({ profile }));
  const context = await chromium.launchPersistentContext(folder, {
    ...launchOptions(),
    ignoreHTTPSErrors: true,
  });
  context.on("close", () => void rm(folder, { recursive: true, force: true, maxRetries: 10 }));
  return await viewerOf(context);
}

async function viewerOf(context: BrowserContext): Promise<Viewer> {
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  return { context, page, complaints };
}
