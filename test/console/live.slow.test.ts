import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { changeRows } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";

const REFRESH_MS = 5_000;

describe("how a page's refreshing stands", () => {
  let proxy: DatabaseProxy;
  let stage: BrowsedConsole;

  beforeAll(async () => {
    stage = await browseConsole({}, async ({ url }) => {
      proxy = await startDatabaseProxy(url);
      return proxy.url;
    });
    const shown = { abandoned: 2, failed: 0, succeeded: 1, pending: 0 };
    await layDeliveries(stage.database, stage.api.account.accountId, shown);
  });
  afterAll(async () => {
    await stage.close();
    await proxy.close();
  });

  /** On a page whose clock the test moves on. */
  async function open(path = "/deliveries") {
    const permissions = ["webhooks:read", "webhooks:replay", "webhooks:write"];
    const viewer = await stage.open({ permissions });
    await viewer.page.clock.install();
    await viewer.page.goto(stage.address(path));
    return viewer;
  }
  async function refresh(page: Page, act = () => page.clock.fastForward(REFRESH_MS)): Promise<void> {
    const asked = page.waitForResponse((response) => response.request().headers()["x-refresh"] !== undefined);
    await act();
    await (await asked).finished();
  }
  const live = (page: Page) => page.locator(".live");
  const state = (page: Page) => live(page).innerText();
  const rename = (name: string) =>
    changeRows(stage.database.pool, "accounts", { id: stage.api.account.accountId }, { name });
  const setStatus = (status: string) =>
    stage.database.pool.query(
      `update sealpost.deliveries set status = $2, reason = null where account_id = $1 and analysis_id = 'inv-3'`,
      [stage.api.account.accountId, status],
    );
  const third = (page: Page) => page.locator("tr:has(a:text-is('inv-3')) .status").innerText();

  test("is live, until the reader pauses it, and again after", async () => {
    const { page, context, complaints } = await open();
    await expect.poll(() => state(page)).toBe("● live 5 s");
    await refresh(page);
    expect(await state(page)).toBe("● live 5 s");
    await live(page).click();
    expect(await state(page)).toBe("‖ paused");
    expect(await faultsOf(page)).toEqual([]);
    let asked = 0;
    page.on("request", () => asked++);
    await setStatus("pending");
    await page.clock.fastForward(10 * REFRESH_MS);
    // Nor because somebody looks at it again.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
    expect([asked, await third(page)]).toEqual([0, "✓ arrived"]);
    await refresh(page, () => live(page).click());
    await expect.poll(() => third(page)).toBe("○ pending");
    expect(await state(page)).toBe("● live 5 s");
    await refresh(page);
    await setStatus("succeeded");
    // It says nothing by itself to who cannot see it.
    expect(await page.locator("[aria-live] .live, .live[aria-live], .live[role]").count()).toBe(0);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("is paused while an answer is on its way: it changes nothing", async () => {
    const { page, context } = await open();
    await rename("Acme");
    await setStatus("pending");
    proxy.hold();
    const asked = page.waitForRequest((request) => request.headers()["x-refresh"] !== undefined);
    await page.clock.fastForward(REFRESH_MS);
    const answered = (await asked).response();
    await live(page).click();
    proxy.letGo();
    await (await answered)?.finished();
    expect([await state(page), await third(page)]).toEqual(["‖ paused", "✓ arrived"]);
    await setStatus("succeeded");
    await context.close();
  });

  test("waits while a form is filled in", async () => {
    const { page, context } = await open();
    await page.click(".times summary");
    await page.focus(".times input:visible");
    expect(await state(page)).toBe("‖ waiting");
    await page.keyboard.press("Shift+Tab");
    expect(await state(page)).toBe("● live 5 s");
    await page.goto(stage.address("/replays/new"));
    await expect.poll(() => state(page)).toBe("‖ waiting");
    await context.close();
  });

  test("is seldom where nobody looks", async () => {
    const { page, context } = await open();
    const hide = (isHidden: boolean) =>
      page.evaluate(`Object.defineProperty(document, "hidden", { configurable: true, get: () => ${isHidden} });
        document.dispatchEvent(new Event("visibilitychange"))`);
    await hide(true);
    expect(await state(page)).toBe("● live 60 s");
    await refresh(page, async () => void (await hide(false)));
    await expect.poll(() => state(page)).toBe("● live 5 s");
    await context.close();
  });

  test("is lost with the service, and live with it again", async () => {
    const { page, context } = await open();
    await page.route("**/deliveries", (route) => route.abort());
    await page.clock.fastForward(REFRESH_MS);
    await expect.poll(() => state(page)).toBe("✕ no answer");
    expect(await faultsOf(page)).toEqual([]);
    await page.unroute("**/deliveries");
    await refresh(page);
    await expect.poll(() => state(page)).toBe("● live 5 s");
    await proxy.cut();
    await refresh(page);
    await expect.poll(() => state(page)).toBe("✕ no answer");
    await proxy.restore();
    await expect
      .poll(async () => {
        await refresh(page);
        return state(page);
      })
      .toBe("● live 5 s");
    await context.close();
  });

  test("has ended with the session", async () => {
    const { page, context } = await open();
    await context.clearCookies();
    await refresh(page);
    await expect.poll(() => state(page)).toBe("■ ended");
    expect(await live(page).isDisabled()).toBe(true);
    expect(await faultsOf(page)).toEqual([]);
    await context.close();
  });

  test("is not there without scripts", async () => {
    const { page, context } = await stage.openWithoutScript();
    expect(await live(page).isVisible()).toBe(false);
    await context.close();
  });
});
