// What a browser makes of a page: requests, the largest paint, and what moves.
import { setTimeout as wait } from "node:timers/promises";
import type { Page } from "playwright-core";
import { startBrowser } from "../../../support/browser.ts";

/**
 * A new window first runs scripts of Chromium's own, which take several times the CPU that the page takes. Somebody who
 * opens the console has a window that has done with them.
 */
const WINDOW_AT_REST_MS = 2_000;

export type PageLoad = {
  readonly requests: number;
  readonly largestPaintMs: number;
  /** Cumulative layout shift. */
  readonly shift: number;
};

/** Observed from before the page's first byte on. */
const OBSERVE = `
globalThis.seen = { largestPaintMs: 0, shift: 0 };
const watch = (type, add) => {
  new PerformanceObserver((list) => list.getEntries().forEach(add)).observe({ type, buffered: true });
};
watch("largest-contentful-paint", (entry) => { seen.largestPaintMs = entry.startTime; });
watch("layout-shift", (entry) => { if (!entry.hadRecentInput) seen.shift += entry.value; });`;

/** Opens the console by its link, and then its first page `count` times, each in a window whose cache is empty. */
export async function loadPages(link: string, count: number): Promise<readonly PageLoad[]> {
  const browser = await startBrowser();
  try {
    const { context, page } = await browser.newViewer();
    await page.goto(link);
    await page.waitForURL(/\/deliveries/);
    const address = page.url();
    const cookies = await context.cookies();
    const loads: PageLoad[] = [];
    while (loads.length < count) {
      const viewer = await browser.newViewer();
      await viewer.context.addCookies(cookies);
      await wait(WINDOW_AT_REST_MS);
      loads.push(await load(viewer.page, address));
      await viewer.context.close();
    }
    return loads;
  } finally {
    await browser.close();
  }
}

async function load(page: Page, address: string): Promise<PageLoad> {
  let requests = 0;
  page.on("request", () => {
    requests += 1;
  });
  await page.addInitScript(OBSERVE);
  await page.goto(address, { waitUntil: "networkidle" });
  const seen = (await page.evaluate("seen")) as Omit<PageLoad, "requests">;
  return { requests, ...seen };
}
