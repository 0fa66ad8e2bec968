// The pages that need no session, as people see them: like the console, at any width, in the light and in the dark.
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { digestSecret } from "../../src/http/api-keys.ts";
import { startBrowser, type TestBrowser } from "../support/browser.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { insertRow } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";
import { MAIL, startTestApi, type TestApi } from "../support/sealpost-api.ts";

const TOKEN = "t".repeat(43);
const PATHS = [
  "/errors",
  "/errors/target_refused",
  "/guide",
  "/about-webhooks",
  "/packages",
  `/notices/confirm/${TOKEN}`,
  "/notices/confirm/nobody",
];

let database: TestDatabase;
let api: TestApi;
let browser: TestBrowser;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startTestApi(database, MAIL);
  await insertRow(database.pool, "notice_recipients", {
    account_id: api.account.accountId,
    address: "ada@example.com",
    token_digest: digestSecret(TOKEN),
    token_expires_at: new Date(Date.now() + 3_600_000),
  });
  browser = await startBrowser();
});
afterAll(async () => {
  await browser.close();
  await api.close();
  await database.drop();
});

describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
  test.each([1440, 390])(
    "pages at %i px are without a fault that axe finds, nor wider than that",
    async (width) => {
      const { page, context, complaints } = await browser.newViewer({
        viewport: { width, height: 900 },
        colorScheme,
      });
      for (const path of PATHS) {
        await page.goto(api.url + path);
        expect([path, await faultsOf(page)]).toEqual([path, []]);
        const [paint, mains] = (await page.evaluate(
          "[getComputedStyle(document.body).backgroundColor, document.querySelectorAll('main').length]",
        )) as [string, number];
        expect([path, paint, mains]).toEqual([
          path,
          colorScheme === "light" ? "rgb(245, 246, 248)" : "rgb(15, 18, 22)",
          1,
        ]);
      }
      // The one for the link that is not valid.
      expect(complaints).toHaveLength(1);
      await context.close();
    },
  );
});

test("codes stand whole in the table of errors, in blocks with their headings on a telephone", async () => {
  const { page, context } = await browser.newViewer({ viewport: { width: 1440, height: 900 } });
  await page.goto(`${api.url}/errors`);
  const broken = await page.evaluate(`(() => {
    const linesOf = (cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom / 8))).size;
    };
    const cells = [...document.querySelectorAll("th, td:nth-child(-n+2)")];
    const ofOneWord = cells.filter((cell) => !cell.innerText.trim().includes(" "));
    return ofOneWord.filter((cell) => linesOf(cell) > 1).map((cell) => cell.innerText);
  })()`);
  expect(broken).toEqual([]);
  await page.setViewportSize({ width: 390, height: 900 });
  const [display, label] = (await page.evaluate(`[
    getComputedStyle(document.querySelector("td")).display,
    getComputedStyle(document.querySelector("td"), "::before").content]`)) as string[];
  expect([display, label]).toEqual(["block", '"Status: "']);
  await context.close();
});

test("the reference has the same colours", async () => {
  const { page, context } = await browser.newViewer({ colorScheme: "dark" });
  await page.goto(`${api.url}/reference/`);
  await page.waitForSelector("h1");
  expect(await page.evaluate("getComputedStyle(document.querySelector('.references-rendered')).color")).toBe(
    "rgb(230, 234, 239)",
  );
  await context.close();
});

test("the colours are those of the console", async () => {
  const variables = (text: string) =>
    Object.fromEntries(
      [...text.matchAll(/(--[\w-]+):\s*(light-dark\(.*?\));/g)].map(([, name, value]) => [name, value]),
    );
  const sheet = readFileSync(new URL("../../src/console/assets/console.css", import.meta.url), "utf8");
  const page = await (await fetch(`${api.url}/errors`, { headers: { accept: "text/html" } })).text();
  const colours = variables(page);
  expect(Object.keys(colours).length).toBeGreaterThan(8);
  expect(colours).toEqual(variables(sheet));
});
