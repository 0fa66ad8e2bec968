import axe from "axe-core";
import type { Page } from "playwright-core";

/** What axe finds, and whether the page is wider than its window. */
export async function faultsOf(page: Page): Promise<readonly string[]> {
  // Pages allow no inline script: axe comes by the debugger, which their policy does not bind.
  const found = await page.evaluate(`${axe.source}; axe.run().then(({ violations }) =>
    violations.map(({ id, nodes }) => id + ": " + nodes.map(({ html }) => html).join(" | ")))`);
  const isWide = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
  return [...(found as string[]), ...(isWide ? ["scrolls sideways"] : [])];
}
