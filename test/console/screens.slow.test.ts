import { readFile } from "node:fs/promises";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { LinkWish } from "../support/console.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { EXCERPT, layDeliveries } from "../support/console-deliveries.ts";
import type { TestDatabase } from "../support/database.ts";
import { faultsOf } from "../support/page-faults.ts";
import type { TestApi } from "../support/sealpost-api.ts";

const PERMISSIONS = ["webhooks:read", "webhooks:replay"];

describe("the console in a browser", () => {
  let database: TestDatabase;
  let api: TestApi;
  let stage: BrowsedConsole;

  beforeAll(async () => {
    stage = await browseConsole();
    ({ database, api } = stage);
    await layDeliveries(database, api.account.accountId, {
      abandoned: 3,
      failed: 2,
      succeeded: 4,
      pending: 2,
    });
  });
  afterAll(async () => {
    await stage.close();
  });

  const open = (wish: LinkWish = {}, options = {}) =>
    stage.open({ permissions: PERMISSIONS, ...wish }, options);

  const statuses = (page: Page) => page.locator("table.log .status").allTextContents();
  const attention = "a:has-text('Needs attention')";

  test("opens by a link, whose token stays in no address", async () => {
    const { page, context, complaints } = await open();
    expect(await page.locator("h1").textContent()).toBe("Deliveries");
    expect(await statuses(page)).toHaveLength(11);
    expect(await page.evaluate("document.cookie + JSON.stringify(localStorage)")).toBe("{}");
    await page.goBack();
    expect(page.url()).not.toContain("t=");
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("shows under 'needs attention' exactly what failed or was abandoned", async () => {
    const { page, context } = await open();
    await page.click(attention);
    expect((await statuses(page)).map((text) => text.replace(/^\S+\s+/, ""))).toEqual([
      ...Array(3).fill("abandoned"),
      ...Array(2).fill("failing"),
    ]);
    const { page: copy, context: other } = await open();
    await copy.goto(page.url());
    expect(await statuses(copy)).toHaveLength(5);
    await Promise.all([context.close(), other.close()]);
  });

  test("shows what a receiver answered as text", async () => {
    const { page, context, complaints } = await open();
    await page.click(`table.log a:text-is("inv-1")`);
    expect(await page.locator("section[aria-labelledby=response] pre").first().textContent()).toBe(EXCERPT);
    await page.click(".attempts summary");
    expect(await page.locator(".attempts pre").last().textContent()).toBe(EXCERPT);
    expect(await page.title()).toMatch(/^inv-1 /);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("shows what was sent, and copies what one asks the API with", async () => {
    const { page, context, complaints } = await open({ permissions: ["webhooks:read", "analyses:read"] });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.click(`table.log a:text-is("inv-1")`);
    await page.click(".attempts summary");
    expect(await page.locator(".attempts pre").first().textContent()).toMatch(
      /^host: hooks\.example\.com\n.*extract-signature: t=\d+,v1=…\n/s,
    );
    const copy = page.locator(".facts .copy", { hasText: "Delivery" });
    await copy.click();
    const id = /\/deliveries\/([0-9a-f-]{36})/.exec(page.url())![1]!;
    // It says so itself, and nothing moves.
    await expect.poll(() => copy.getAttribute("data-copied")).toBe("");
    expect(await page.locator("#banner").isVisible()).toBe(false);
    expect(await page.evaluate("navigator.clipboard.readText()")).toBe(id);
    await page.click("text=The body, as it is sent");
    const body = JSON.parse((await page.locator("pre").textContent()) ?? "");
    expect(body).toMatchObject({ id, data: { id: "inv-1" } });
    await page.click("main .copy");
    const [file] = await Promise.all([page.waitForEvent("download"), page.click("text=Download")]);
    expect(file.suggestedFilename()).toBe(`${id}.json`);
    const sent = await readFile(await file.path(), "utf8");
    expect([JSON.parse(sent), await page.evaluate("navigator.clipboard.readText()")]).toEqual([body, sent]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("replays by keyboard, once for a form that is sent twice", async () => {
    const { page, context } = await open();
    await page.click(`table.log a:text-is("inv-2")`);
    await page.waitForSelector("button.primary");
    const form = await page.locator("form[action$='/replay']").evaluate((element) => ({
      action: (element as unknown as { action: string }).action,
      key: (element as unknown as { elements: Record<string, { value: string }> }).elements._key!.value,
    }));
    await page.keyboard.press("r");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=Queued: run 2 starts now.");
    const again = await page.request.post(form.action, {
      form: { _key: form.key },
      headers: { "sec-fetch-site": "same-origin" },
      maxRedirects: 0,
    });
    expect(again.status()).toBe(303);
    const { rows } = await database.pool.query(
      "select run from sealpost.deliveries where analysis_id = 'inv-2' and account_id = $1",
      [api.account.accountId],
    );
    expect(rows).toEqual([{ run: 2 }]);
    await context.close();
  });

  test("offers nobody what he may not do", async () => {
    const { page, context } = await open({ permissions: ["webhooks:read"] });
    await page.click(`table.log a:text-is("inv-1")`);
    await page.waitForSelector("h2");
    expect(await page.locator("form[action$='/replay']").count()).toBe(0);
    expect(await page.locator("nav >> text=Replays").count()).toBe(0);
    await context.close();
  });

  test("shows every time by one clock, and how far off what is waited for is", async () => {
    const { page, context } = await open({ time_zone: "Asia/Kathmandu" });
    await page.click(attention);
    await page.waitForURL(/status=/);
    expect(await page.locator("tr[id] td:last-child").last().innerText()).toMatch(
      /^.+ \((?:in \d+ min|in 1 h)\)$/,
    );
    for (const [analysis, when] of [
      ["inv-1", / until \d+ \w{3,4} 2\d{3}, \d\d:\d\d:\d\d \(in \d d\)\.$/],
      ["inv-5", / is due at \d+ \w{3,4} 2\d{3}, \d\d:\d\d:\d\d \(in \d+ min\)\./],
    ] as const) {
      await page.goto(stage.address(`/deliveries?analysis_id=${analysis}`));
      await page.click("table.log td a");
      await page.waitForSelector(".cause");
      expect((await page.locator(".cause").innerText()).trim()).toMatch(when);
      expect(await page.locator("main").innerText()).not.toContain(" UTC");
      const id = page.url().split("/").at(-1);
      const { body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`, api.account);
      expect(body.explanation).toMatch(/ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\./);
    }
    await context.close();
  });

  test("tells in full what was granted, and what a filter takes any of", async () => {
    const permissions = ["webhooks:read", "audit:read"];
    const { page, context } = await open({ permissions });
    const body = { filter: { status: ["failed", "abandoned"], analysis_id: "nobody" } };
    await api.ask("POST", "/v1/webhooks/replays", { body, key: api.account.ownKey });
    await page.click("nav >> text=Changes");
    const changes = async () => (await page.locator("table.audit").innerText()).replaceAll(/\s+/g, " ");
    expect(await changes()).toContain("replayed 0 deliveries (analysis nobody)");
    await page.click("text=Show openings and sign-ins");
    await page.waitForSelector("text=Hide openings and sign-ins");
    expect(await changes()).toContain("opened the console for Sam Viewer (webhooks:read, audit:read)");
    await context.close();
  });

  test("is gone through by Tab with a visible focus, past a link that skips the header", async () => {
    const { page, context } = await open();
    const origins = new Set<string>();
    page.on("request", (request) => origins.add(new URL(request.url()).origin));
    const base = stage.address("");
    const href = await page.locator("table.log td a").first().getAttribute("href");
    for (const path of [
      `${base}/deliveries`,
      new URL(href!, base).href,
      `${base}/replays`,
      `${base}/endpoint`,
    ]) {
      await page.goto(path);
      expect([path, await page.locator("h1").count()]).toEqual([path, 1]);
      const focusable = await page
        .locator("a[href]:visible, button:visible, select:visible, input:visible")
        .count();
      const seen = new Set<string>();
      for (let n = 0; n < focusable; n++) {
        await page.keyboard.press("Tab");
        const [text, outline] = (await page.evaluate(`[document.activeElement.outerHTML.slice(0, 200),
          getComputedStyle(document.activeElement).outlineStyle]`)) as [string, string];
        expect([text, outline]).toEqual([text, "solid"]);
        seen.add(text);
        if (n === 0) expect(text).toContain("Skip to content");
      }
      expect(seen.size).toBeGreaterThan(focusable / 2);
    }
    await page.goto(`${base}/deliveries`);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    expect(await page.locator(":focus").getAttribute("id")).toBe("main");
    expect([...origins]).toEqual([new URL(api.url).origin]);
    await context.close();
  });

  test("works without scripts, once it is open", async () => {
    const { page, context } = await stage.openWithoutScript({ permissions: PERMISSIONS });
    await page.click(attention);
    for (const text of await statuses(page)) expect(text).toMatch(/abandoned|failing/);
    await page.click("text=More filters");
    await page.fill("input[name=analysis_id]", "inv-3");
    await page.click("button:text-is('Filter')");
    await page.click("table.log td a");
    await page.click("button.primary");
    expect(await page.locator(".said").textContent()).toContain("Queued: run 2");
    await context.close();
  });

  test("says what is wrong with a filter, and where the id is that nobody has", async () => {
    const { page, context } = await open();
    await page.goto(`${api.url}/console/a/${api.account.accountId}/deliveries?status_code=9`);
    expect(await page.locator("h1").textContent()).toBe("Deliveries");
    expect(await page.locator("[aria-invalid]").getAttribute("name")).toBe("code");
    await page.fill("[aria-invalid]", "503");
    await page.click("button:text-is('Filter')");
    await page.waitForURL(/status_code=503/);
    expect(await page.locator("[aria-invalid]").count()).toBe(0);
    const nowhere = await page.goto(
      `${api.url}/console/a/${api.account.accountId}/deliveries/01a202fb-dbd9-7000-aca3-48e0de76fa5b`,
    );
    expect(nowhere?.status()).toBe(404);
    expect(await page.locator("h1").textContent()).toBe("Not found");
    await page.click("text=Back to deliveries");
    await page.waitForSelector("h1:text-is('Deliveries')");
    await context.close();
  });

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360, 320])(
      "at %i px is without a fault that axe finds, and never scrolls sideways",
      async (width) => {
        const { page, context } = await open({}, { viewport: { width, height: 800 }, colorScheme });
        const base = `${api.url}/console/a/${api.account.accountId}`;
        const refused = ["/deliveries?status_code=9", "/replays/new?status=failed&rate_per_second=0"];
        for (const path of ["/deliveries", "/deliveries?analysis_id=nobody", ...refused, "/nothing"]) {
          await page.goto(base + path);
          expect([path, await faultsOf(page)]).toEqual([path, []]);
        }
        await page.goto(`${base}/deliveries`);
        await page.click(`table.log a:text-is("inv-1")`);
        await page.click(".attempts summary");
        expect(await faultsOf(page)).toEqual([]);
        await context.close();
      },
    );
  });
});
