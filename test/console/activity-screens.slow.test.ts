import { gzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startBrowser, type TestBrowser, type Viewer } from "../support/browser.ts";
import { newLink } from "../support/console.ts";
import { layActivity } from "../support/console-activity.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const HOUR_MS = 3_600_000;
const PAGE_BYTES_MAX = 15_000;
const CSS_BYTES_MAX = 8_000;
/** With what is loaded only once something has changed. */
const SCRIPT_BYTES_MAX = 12_000;

describe("the log's activity in a browser", () => {
  let database: TestDatabase;
  let api: TestApi;
  let browser: TestBrowser;
  let failing: TestAccount;

  beforeAll(async () => {
    database = await createTestDatabase();
    api = await startTestApi(database);
    browser = await startBrowser();
    failing = await api.newAccount();
    await layDeliveries(database, failing.accountId, { abandoned: 40, failed: 10, succeeded: 5, pending: 2 });
    await layActivity(database, failing.accountId, 2 * HOUR_MS);
  });
  afterAll(async () => {
    await browser.close();
    await api.close();
    await database.drop();
  });

  async function open(
    { ownKey: key } = failing,
    options = {},
    permissions: readonly string[] = ["webhooks:read"],
  ): Promise<Viewer> {
    const viewer = await browser.newViewer(options);
    const link = await newLink(api, { key, permissions });
    await viewer.page.goto(link.href);
    await viewer.page.waitForURL(/\/deliveries/);
    return viewer;
  }

  const bars = (page: Page) => page.locator("svg.bars a");
  const rows = (page: Page) => page.locator("table.log tbody td:nth-child(2) a").allTextContents();
  /** Beside the view that is open. */
  const counted = (page: Page) => page.locator(".tabs [aria-current] .fine").textContent();
  const queryOf = (page: Page) => Object.fromEntries(new URL(page.url()).searchParams);

  test("a bar sets the range in the address, Back restores filters and focus, a copy shows the same", async () => {
    const { page, context, complaints } = await open();
    await page.click("a:has-text('Needs attention')");
    await page.waitForURL(/status=/);
    const before = page.url();
    const [all, shown] = [await rows(page), bars(page)];
    const bar = shown.nth((await shown.count()) - 2);
    const title = await bar.locator("title").textContent();
    const href = await bar.getAttribute("href");
    await bar.click();
    await page.waitForURL(/created_after=/);
    const { created_after: after, created_before: until } = queryOf(page);
    expect(Date.parse(until!) - Date.parse(after!)).toBe(15 * 60_000);
    const marked = page.locator("svg.bars [aria-current]");
    expect(await marked.locator("title").textContent()).toBe(title);
    const narrowed = await rows(page);
    expect(narrowed.length).toBeGreaterThan(0);
    expect(narrowed.length).toBeLessThan(all.length);

    const { page: copy, context: other } = await open();
    await copy.goto(page.url());
    expect(await rows(copy)).toEqual(narrowed);
    expect(await copy.locator("svg.bars [aria-current] title").textContent()).toBe(title);
    await other.close();

    await page.goBack();
    await page.waitForURL(before);
    expect(await rows(page)).toEqual(all);
    await expect.poll(() => page.evaluate("document.activeElement.getAttribute('href')")).toBe(href);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("says since when what has not arrived, and why; a reason is a filter", async () => {
    const { page, context } = await open();
    const said = (await page.locator(".trouble").innerText()).trim();
    expect(said).toMatch(
      /^50 events have not arrived at hooks\.example\.com, failing since \d\d:\d\d \(2 h ago\)\. The receiver's /,
    );
    expect(said).toMatch(/ server refused the connection: .* Check that /);
    await page.click(".trouble a");
    expect(await counted(page)).toBe("50");
    await page.goBack();
    await page.click(".causes a");
    await page.waitForURL(/error_code=connect_refused/);
    expect(queryOf(page)).toMatchObject({ target_host: "hooks.example.com" });
    await context.close();
  });

  test("counts by host and status, whenever they were published; its link leads to exactly those", async () => {
    const account = await api.newAccount();
    // Each a minute older, and nothing failed before the newest were there.
    await layDeliveries(database, account.accountId, { abandoned: 6, failed: 3, succeeded: 0, pending: 1 });
    const [elsewhere] = await publishAt(
      database.pool,
      account.accountId,
      new Date(),
      ["other"],
      "https://other.example.net/",
    );
    await changeRows(database.pool, "deliveries", { id: elsewhere }, { status: "failed" });
    await layActivity(database, account.accountId, 2 * 60_000);
    const { page, context } = await open(account, {}, ["webhooks:read", "webhooks:replay"]);
    expect(await page.locator(".trouble a").innerText()).toBe("9 events");
    await page.click(".trouble a");
    await page.waitForURL(/target_host=/);
    expect(queryOf(page)).toEqual({ status: "abandoned", target_host: "hooks.example.com" });
    expect(await counted(page)).toBe("9");
    expect(await page.locator(".trouble a").innerText()).toBe("9 events");
    await page.click(".bar a.button");
    expect(await page.locator("#matched").textContent()).toBe("9 deliveries match");
    await context.close();
  });

  test("keeps its range while filters change, and filters while its range changes", async () => {
    const { page, context } = await open();
    await page.click("a:has-text('Needs attention')");
    for (const name of ["1h", "7d", "30d", "24h"]) {
      await page.click(`.ranges >> text="${name}"`);
      await expect.poll(() => page.locator(".ranges [aria-current]").textContent()).toBe(name);
      expect(new URL(page.url()).searchParams.getAll("status")).toEqual(["failed", "abandoned"]);
      expect(await bars(page).count()).toBeGreaterThan(0);
    }
    await page.click(".ranges >> text='7d'");
    await page.click("text=More filters");
    await page.fill("input[name=analysis_id]", "inv-3");
    await page.press("input[name=analysis_id]", "Enter");
    await page.waitForURL(/analysis_id=inv-3/);
    expect(queryOf(page).range).toBe("7d");
    await context.close();
  });

  test("is a table for who reads it by keyboard, without scripts", async () => {
    const viewer = await open();
    const state = await viewer.context.storageState();
    await viewer.context.close();
    const { page, context } = await browser.newViewer({ javaScriptEnabled: false, storageState: state });
    await page.goto(`${api.url}/console/a/${failing.accountId}/deliveries?range=1h`);
    const count = await bars(page).count();
    await page.focus("summary:has-text('as a table')");
    await page.keyboard.press("Enter");
    const links = page.locator(".activity table a");
    expect(await links.count()).toBe(count);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL(/created_after=/);
    await bars(page).first().click({ force: true });
    expect(queryOf(page)).toMatchObject({ range: "1h" });
    await context.close();
  });

  test("says what is not counted yet", async () => {
    await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(Date.now() - 3 * HOUR_MS) });
    const { page, context } = await open();
    expect(await page.locator(".behind").textContent()).toMatch(
      /^What ended after \d\d:\d\d is not counted yet\.$/,
    );
    expect(await page.locator("svg.bars .later").count()).toBe(1);
    await changeRows(database.pool, "activity_state", {}, { counted_to: new Date(Date.now() - 60_000) });
    await page.reload();
    expect(await page.locator(".behind").count()).toBe(0);
    await context.close();
  });

  test("is not blinded by a host that nobody can ask for", async () => {
    const odd = await api.newAccount();
    await layDeliveries(database, odd.accountId, { abandoned: 1, failed: 0, succeeded: 0, pending: 0 });
    await layActivity(database, odd.accountId, 2 * HOUR_MS, "https://b\u00fccher.example\u202e/in");
    const { page, context } = await open(odd);
    expect(await page.locator(".trouble").count()).toBe(0);
    expect(await page.locator(".causes a").textContent()).toBe("connect_refused b\u00fccher.example\ufffd");
    await page.click(".causes a");
    await page.waitForURL(/error_code=connect_refused$/);
    expect(await page.locator("h1").textContent()).toBe("Deliveries");
    await context.close();
  });

  test("shows nothing of another account, nor a chart before anything was published", async () => {
    const { page, context } = await open(await api.newAccount());
    expect(await page.content()).not.toContain("hooks.example.com");
    expect(await page.locator("svg.bars").count()).toBe(0);
    await context.close();
  });

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360, 320])("at %i px is without a fault that axe finds", async (width) => {
      const { page, context, complaints } = await open(failing, {
        viewport: { width, height: 800 },
        colorScheme,
      });
      for (const range of ["1h", "24h", "30d"]) {
        await page.goto(`${api.url}/console/a/${failing.accountId}/deliveries?range=${range}`);
        await page.click("text=Attempts as a table");
        expect([range, await faultsOf(page)]).toEqual([range, []]);
      }
      await page.click(".activity table a");
      expect(await faultsOf(page)).toEqual([]);
      expect(complaints).toEqual([]);
      await context.close();
    });
  });

  test("keeps to its budget", async () => {
    const { page, context } = await open();
    const response = await page.goto(`${api.url}/console/a/${failing.accountId}/deliveries`);
    expect(gzipSync(await response!.body()).length).toBeLessThan(PAGE_BYTES_MAX);
    const href = await page.getAttribute("link[rel=stylesheet]", "href");
    const css = await page.request.get(new URL(href!, api.url).href);
    expect(gzipSync(await css.body()).length).toBeLessThan(CSS_BYTES_MAX);
    const scripts = [
      await page.getAttribute("script[src]", "src"),
      await page.getAttribute("main", "data-morph"),
    ];
    const sizes = scripts.map(async (path) => {
      const script = await page.request.get(new URL(path!, api.url).href);
      return gzipSync(await script.body()).length;
    });
    const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    expect(bytes).toBeLessThan(SCRIPT_BYTES_MAX);
    await context.close();
  });

  test.each([
    [{ width: 1440, height: 900 }, 420, 12],
    [{ width: 1024, height: 768 }, 480, 6],
    [{ width: 390, height: 844 }, 640, 3],
  ])("at %o the first row is above %i, and %i are seen", async (viewport, above, rowsMin) => {
    const { page, context } = await open(failing, { viewport }, ["webhooks:read", "webhooks:replay"]);
    await page.click("a:has-text('Needs attention')");
    await page.waitForURL(/status=/);
    const boxes = await page
      .locator("table.log tr[id]")
      .evaluateAll((rows) =>
        (
          rows as unknown as { getBoundingClientRect(): { top: number; bottom: number; height: number } }[]
        ).map((row) => row.getBoundingClientRect()),
      );
    expect(boxes[0]!.top).toBeLessThan(above);
    expect(boxes.filter(({ bottom }) => bottom <= viewport.height).length).toBeGreaterThanOrEqual(rowsMin);
    if (viewport.width >= 1024)
      expect([...new Set(boxes.map(({ height }) => Math.round(height)))]).toEqual([36]);
    await context.close();
  });

  test("filters are folded, and what is set is told, each with a way to do without", async () => {
    const { page, context } = await open(failing, { viewport: { width: 360, height: 640 } });
    expect(await page.locator("input[name=analysis_id]").isVisible()).toBe(false);
    await page.keyboard.press("/");
    await page.keyboard.type("hooks.ex");
    await page.keyboard.press("Enter");
    await page.waitForURL(/q=hooks.ex/);
    await page.click("text=More filters");
    await page.fill("input[name=code]", "503");
    await page.keyboard.press("Enter");
    await page.waitForURL(/status_code=503/);
    const chips = page.locator(".chips li");
    expect(await chips.allInnerTexts()).toEqual(["search hooks.ex ✕", "code 503 ✕", "Clear filters"]);
    await chips.first().locator("a").click();
    await page.waitForURL((url) => !url.search.includes("q="));
    await page.click("text=Clear filters");
    await page.waitForURL(/deliveries$/);
    expect(await chips.count()).toBe(0);
    await context.close();
  });
});
