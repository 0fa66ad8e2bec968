import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { endAttempts, layDeliveries } from "../support/console-deliveries.ts";
import { rowOf } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";

describe("a run's attempts as dots", () => {
  let stage: BrowsedConsole;
  let id: string;

  beforeAll(async () => {
    stage = await browseConsole();
    const { accountId } = stage.api.account;
    const shown = { abandoned: 1, failed: 1, succeeded: 1, pending: 1 };
    await layDeliveries(stage.database, accountId, shown);
    id = (await rowOf(stage.database.pool, "deliveries", { account_id: accountId, analysis_id: "inv-1" })).id;
    await stage.api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`, {});
    await endAttempts(stage.database, new Map([[id, "failed"]]));
  });
  afterAll(async () => {
    await stage.close();
  });

  test("each leads to its attempt, and what is left is told in words", async () => {
    const { page, context, complaints } = await stage.open({ time_zone: "Europe/Berlin" });
    await page.goto(stage.address(`/deliveries/${id}`));
    const timeline = page.locator(".timeline");
    expect(await timeline.count()).toBe(2);
    const [now, before] = [timeline.first(), timeline.last()];
    expect(await now.locator("p").innerText()).toMatch(/^1 of 8, next \d+ \w{3,4}, \d\d:\d\d$/);
    expect(await before.locator("p").innerText()).toBe("1 of 8");
    expect(await now.locator("svg > circle.spare").count()).toBe(6);
    expect([await now.locator(".next").count(), await before.locator(".next").count()]).toEqual([1, 0]);
    const titles = await page.locator(".timeline a title").allTextContents();
    expect(titles).toEqual([
      expect.stringMatching(/^Attempt 1: 503, \d+ \w{3,4}, \d\d:\d\d$/),
      expect.stringMatching(/^Attempt 1: 503, /),
    ]);
    // Not by colour alone: each kind has a sign of its own.
    const signs = page.locator(".timeline a.bad .sign");
    expect(await signs.count()).toBe(2);
    await now.locator("a").focus();
    await page.keyboard.press("Enter");
    expect(new URL(page.url()).hash).toBe("#a-2-1");
    expect(await page.locator(":target").getAttribute("id")).toBe("a-2-1");
    expect(complaints).toEqual([]);
    await context.close();
  });

  test.each([
    ["inv-2", "failed", /^1 of 8, next /, "bad"],
    ["inv-3", "succeeded", /^1 of 8$/, "good"],
  ])("of %s, which has %s", async (name, _, text, kind) => {
    const { page, context } = await stage.open();
    await page.click(`table.log a:text-is("${name}")`);
    expect(await page.locator(".timeline p").innerText()).toMatch(text);
    expect(await page.locator(".timeline a").getAttribute("class")).toBe(kind);
    await context.close();
  });

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360, 320])("at %i px are without a fault that axe finds", async (width) => {
      const { page, context } = await stage.open({}, { viewport: { width, height: 800 }, colorScheme });
      await page.goto(stage.address(`/deliveries/${id}`));
      expect(await faultsOf(page)).toEqual([]);
      const dot = await page.locator(".timeline a").first().boundingBox();
      expect(Math.min(dot!.width, dot!.height)).toBeGreaterThanOrEqual(24);
      await context.close();
    });
  });
});
