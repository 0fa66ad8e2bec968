import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows, rowOf } from "../support/installation.ts";

const REFRESH_MS = 5_000;

describe("the log in a browser", () => {
  let stage: BrowsedConsole;
  let accountId: string;

  beforeAll(async () => {
    stage = await browseConsole();
    ({ accountId } = stage.api.account);
    await layDeliveries(stage.database, accountId, { abandoned: 3, failed: 2, succeeded: 4, pending: 2 });
    await change("inv-1", { last_error_code: "tls_expired", last_status_code: null });
  });
  afterAll(async () => {
    await stage.close();
  });

  const change = (analysisId: string, values: Readonly<Record<string, unknown>>) =>
    changeRows(stage.database.pool, "deliveries", { account_id: accountId, analysis_id: analysisId }, values);
  const idOf = async (analysisId: string): Promise<string> =>
    (await rowOf(stage.database.pool, "deliveries", { account_id: accountId, analysis_id: analysisId })).id;
  const open = () => stage.open({ permissions: ["webhooks:read", "webhooks:replay"] });
  const names = (page: Page) => page.locator("table.log .row").allInnerTexts();
  const headings = (page: Page) => page.locator("tr.group").allInnerTexts();
  const search = async (page: Page, text: string) => {
    await page.goto(stage.address("/deliveries"));
    await page.keyboard.press("/");
    await page.keyboard.type(text);
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=|\/deliveries\/[0-9a-f]/);
  };

  test("what fails for one reason at one host is told once, unless one does not want that", async () => {
    const { page, context } = await open();
    await page.click("a:has-text('Needs attention')");
    await page.waitForURL(/status=/);
    expect(await headings(page)).toEqual([
      expect.stringMatching(
        /^4 × status_503 at hooks\.example\.com The receiver returned 503.* Replay these…$/,
      ),
      expect.stringMatching(
        /^1 × tls_expired at hooks\.example\.com The receiver's TLS certificate has expired/,
      ),
    ]);
    expect(await names(page)).toEqual(["inv-2", "inv-3", "inv-4", "inv-5", "inv-1"]);
    await page.click("text=Ungroup");
    await page.waitForURL(/group=off/);
    expect([await headings(page), await names(page)]).toEqual([
      [],
      ["inv-1", "inv-2", "inv-3", "inv-4", "inv-5"],
    ]);
    await page.click("text=Group by cause");
    await page.click("tr.group >> nth=0 >> text=Replay these");
    await page.waitForURL(/\/replays\/new\?/);
    expect(await page.locator("#matched").innerText()).toBe("4 deliveries match");
    await page.goBack();
    await page.click("tr.group >> nth=0 >> a");
    await page.waitForURL(/target_host=hooks\.example\.com/);
    await context.close();
  });

  test("a window of 1024 px has room for what a delivery is called", async () => {
    const { page, context } = await stage.open({}, { viewport: { width: 1_024, height: 768 } });
    const cut =
      "[...document.querySelectorAll('td:has(.row)')].filter((cell) => cell.scrollWidth > cell.clientWidth).length";
    expect([await page.locator("td .row").count(), await page.evaluate(cut)]).toEqual([11, 0]);
    await context.close();
  });

  test("a row is a link, wherever it is clicked", async () => {
    const { page, context } = await open();
    await page.locator("table.log tr[id]").first().click();
    await page.waitForURL(/\/deliveries\/[0-9a-f-]{36}$/);
    await context.close();
  });

  test("one field finds a delivery by enough of its id, an analysis and a host by their beginnings", async () => {
    const { page, context } = await open();
    const id = await idOf("inv-7");
    for (const text of [id, id.toUpperCase().slice(0, 30), "inv-7"]) {
      await search(page, text);
      await page.waitForURL(`**/deliveries/${id}`);
    }
    await search(page, "inv-");
    expect((await names(page)).length).toBe(11);
    expect(await page.locator(".bar a.button").count()).toBe(0);
    // Two wait for their first attempt, and have been nowhere yet.
    await search(page, "hooks.exa");
    expect((await names(page)).length).toBe(9);
    await page.click("a:has-text('Needs attention')");
    await page.waitForURL(/status=/);
    expect((await names(page)).length).toBe(5);
    await search(page, "ooks.example");
    expect(await page.locator("h2").allInnerTexts()).toContain("No delivery matches");
    await context.close();
  });

  test("rows stay where they are under a reader while others come, go, and fail for other reasons", async () => {
    const { page, context, complaints } = await open();
    await page.clock.install();
    await page.goto(stage.address("/deliveries?status=failed&status=abandoned"));
    const before = await names(page);
    const [newest] = await publishAt(stage.database.pool, accountId, new Date(), ["inv-new"]);
    await changeRows(stage.database.pool, "deliveries", { id: newest }, { status: "failed" });
    await change("inv-2", { last_error_code: "tls_expired" });
    await change("inv-5", { status: "succeeded" });
    await page.clock.fastForward(REFRESH_MS);
    await expect.poll(() => page.locator(".newer").textContent()).toBe("1 newer, 2 no longer match: show");
    expect(complaints).toEqual([]);
    expect(await names(page)).toEqual(before);
    expect(await page.locator("tr.gone .row").allInnerTexts()).toEqual(["inv-2", "inv-5"]);
    await page.click(".newer a");
    await page.waitForSelector("text=inv-new");
    expect(await names(page)).toHaveLength(5);
    await context.close();
  });

  test("without a delivery, the next step is told", async () => {
    const { ownKey: key } = await stage.api.newAccount();
    const { page, context } = await stage.open({ key, permissions: ["webhooks:read"] });
    expect(await page.locator(".empty").innerText()).toMatch(/Say where webhooks go\. Ask an administrator/);
    await context.close();
  });
});
