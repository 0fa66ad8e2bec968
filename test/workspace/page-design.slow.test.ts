// Published pages in a browser: like the rest of the service, at any width, in the light and in the dark.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startBrowser, type TestBrowser } from "../support/browser.ts";
import { faultsOf } from "../support/page-faults.ts";
import type { Json } from "../support/sealpost-api.ts";
import { api, usePages, world } from "./page-world.ts";

const TEXT = `# Contracts

What was **signed**, as [the archive](https://archive.example) has it, and \`as code\`:

| Contract | Status | Pages |
|---|---|---|
| A-17 | signed | 12 |
| B-4 | exhausted | 400 |

> Quoted.

\`\`\`
${"code that is long ".repeat(20)}
\`\`\`

${"x".repeat(200)}
`;

usePages();
let browser: TestBrowser;
beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(() => browser.close());

const addressOf = (link: Json) => {
  const address = new URL(String(link.url));
  address.port = new URL(api.url).port;
  return address.href;
};

/** As they are but for their policy, in whose sandbox no timer runs, and so no axe. */
async function openPages(page: Page): Promise<void> {
  await page.route("**/p/*", async (route) => {
    const request = route.request();
    const password = new URLSearchParams(request.postData() ?? "").get("password");
    const link = { url: request.url() };
    const { status, text } = await (password === null ? world.open(link) : world.send(link, password));
    await route.fulfill({ status, contentType: "text/html; charset=utf-8", body: text });
  });
}

describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
  test.each([1440, 390])(
    "a page at %i px is without a fault that axe finds, nor wider than that",
    async (width) => {
      const { page, context } = await browser.newViewer({ viewport: { width, height: 900 }, colorScheme });
      await openPages(page);
      const open = addressOf((await world.linked({}, TEXT)).link);
      const asks = addressOf((await world.linked({ password: "correct horse" }, TEXT)).link);
      for (const address of [open, asks, `${asks.slice(0, -43)}${"a".repeat(43)}`]) {
        await page.goto(address);
        expect([address, await faultsOf(page)]).toEqual([address, []]);
      }
      await page.goto(asks);
      await page.fill("#password", "wrong");
      await page.click("button");
      await page.waitForSelector("[role=alert]");
      expect(await faultsOf(page)).toEqual([]);
      await context.close();
    },
  );
});

test("a table keeps its headings on a telephone, and its words", async () => {
  const { page, context } = await browser.newViewer({ viewport: { width: 390, height: 900 } });
  await page.goto(addressOf((await world.linked({}, TEXT)).link));
  expect(await page.locator("th").allInnerTexts()).toEqual(["Contract", "Status", "Pages"]);
  expect(await page.locator("th").first().isVisible()).toBe(true);
  const heights = await page
    .locator("td")
    .evaluateAll((cells) => cells.map((cell) => cell.getClientRects()[0]!.height));
  expect(Math.max(...heights)).toBeLessThan(40);
  await context.close();
});
