import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { faultsOf } from "../support/page-faults.ts";

const FRONT = "/console/staff";
const REFRESH_MS = 5_000;

describe("without a database support staff", () => {
  let proxy: DatabaseProxy;
  let stage: BrowsedConsole;
  let key: string;

  beforeAll(async () => {
    stage = await browseConsole({}, async ({ url }) => {
      proxy = await startDatabaseProxy(url);
      return proxy.url;
    });
    key = await stage.api.newKey(null);
    const shown = { abandoned: 3, failed: 0, succeeded: 0, pending: 0 };
    await layDeliveries(stage.database, stage.api.account.accountId, shown);
  });
  afterAll(async () => {
    await stage.close();
    await proxy.close();
  });

  const address = (path: string) => `${stage.api.url}${path}`;
  async function signIn(page: Page): Promise<void> {
    await page.fill("input[name=key]", key);
    await page.click("button:text-is('Sign in')");
  }
  async function refresh(page: Page): Promise<void> {
    const asked = page.waitForResponse((response) => response.request().headers()["x-refresh"] !== undefined);
    await page.clock.fastForward(REFRESH_MS);
    await (await asked).finished();
  }

  test.each([
    [FRONT, ".failing-accounts > li"],
    [`${FRONT}/audit?openings=shown`, "table.audit tr[id]"],
    [`${FRONT}/a/ACCOUNT/deliveries`, "table.log tr[id]"],
  ])("keep what %s shows under a banner, and all recovers by itself", async (asked, rows) => {
    const path = asked.replace("ACCOUNT", stage.api.account.accountId);
    const viewer = await stage.newViewer();
    const { page, context } = viewer;
    await page.goto(address(path));
    await signIn(page);
    await page.waitForSelector(rows);
    await page.clock.install();
    await page.reload();
    const late = await context.newPage();
    const before = await page.locator(rows).allTextContents();
    await proxy.cut();
    await refresh(page);
    await page.waitForSelector("#banner.bad >> text=cannot answer at the moment");
    expect(await page.locator(rows).allTextContents()).toEqual(before);
    expect(await faultsOf(page)).toEqual([]);
    // Whoever comes now has no rows yet.
    await late.goto(address(path));
    expect(await late.locator("[data-problem=temporarily_unavailable]").count()).toBe(1);
    await proxy.restore();
    await expect
      .poll(async () => {
        await refresh(page);
        return page.locator("#banner").isVisible();
      })
      .toBe(false);
    await expect.poll(() => late.locator(rows).count()).toBeGreaterThan(0);
    await context.close();
  });

  test("are told at the door that it is not their key, and get in with it afterwards", async () => {
    const { page, context } = await stage.newViewer();
    await proxy.cut();
    await page.goto(address(`${FRONT}/audit`));
    expect(await page.locator("h1").textContent()).toBe("Sign in to support");
    await signIn(page);
    await page.waitForSelector("[role=alert]");
    const said = await page.locator("[role=alert]").innerText();
    expect(said).toMatch(/cannot be looked up at the moment/);
    expect(said).not.toContain("valid staff key");
    expect(await page.content()).not.toContain(key);
    expect(await faultsOf(page)).toEqual([]);
    await proxy.restore();
    await expect
      .poll(async () => {
        await signIn(page);
        await page.waitForLoadState();
        return page.locator("h1").textContent();
      })
      .toBe("Audit");
    await context.close();
  });
});
