import type { Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { withoutKeys } from "../../src/console/refresh.ts";
import { enter } from "../support/console.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { endAttempts, layDeliveries } from "../support/console-deliveries.ts";
import { type DatabaseProxy, startDatabaseProxy } from "../support/database-proxy.ts";
import { changeRows, publish, rowOf } from "../support/installation.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const PERMISSIONS = ["webhooks:read", "webhooks:replay"];
/** After which a page that somebody sees asks again. */
const REFRESH_MS = 5_000;

let proxy: DatabaseProxy;
let stage: BrowsedConsole;
let account: TestAccount;

beforeAll(async () => {
  stage = await browseConsole({}, async ({ url }) => {
    proxy = await startDatabaseProxy(url);
    return proxy.url;
  });
});
afterAll(async () => {
  await stage.close();
  await proxy.close();
});
beforeEach(async () => {
  account = await stage.api.newAccount();
  await layDeliveries(stage.database, account.accountId, {
    abandoned: 3,
    failed: 2,
    succeeded: 2,
    pending: 1,
  });
});

const publishOne = (id: string) =>
  publish(stage.database.pool, account.accountId, JSON.stringify({ id, status: "succeeded" }));
const deliveryOf = (analysis_id: string) =>
  rowOf(stage.database.pool, "deliveries", { account_id: account.accountId, analysis_id });

describe("a page that its script asks for again", () => {
  const again = (tag = "") => ({ "x-refresh": "1", ...(tag !== "" && { "if-none-match": tag }) });

  const changes: Readonly<Record<string, () => Promise<unknown>>> = {
    "/deliveries": () => publishOne("new-1"),
    "/endpoint": () =>
      changeRows(
        stage.database.pool,
        "endpoints",
        { account_id: account.accountId },
        { url: "https://hooks.example.com/other" },
      ),
    delivery: async () => {
      const { id } = await deliveryOf("inv-1");
      await changeRows(stage.database.pool, "deliveries", { id }, { status: "succeeded", reason: null });
    },
  };

  test.each(Object.entries(changes))(
    "is not sent anew while it is the same, and never kept by a cache: %s",
    async (asked, change) => {
      const hand = await enter(stage.api, { key: account.ownKey, permissions: PERMISSIONS });
      const path = asked === "delivery" ? `/deliveries/${(await deliveryOf("inv-1")).id}` : asked;
      const first = await hand.get(hand.base + path, again());
      const tag = first.headers.get("etag")!;
      const second = await hand.get(hand.base + path, again(tag));
      expect([second.status, second.text, second.headers.get("etag")]).toEqual([304, "", tag]);
      for (const { headers } of [first, second]) expect(headers.get("cache-control")).toBe("no-store");
      const page = await hand.get(hand.base + path);
      expect(page.headers.get("etag")).toBeNull();
      expect(withoutKeys(page.text)).toContain(withoutKeys(first.text));
      expect(first.text).toMatch(/^<main .*<\/main>$/s);
      await change();
      expect(await hand.get(hand.base + path, again(tag))).toMatchObject({ status: 200 });
    },
  );
});

describe("in a browser", { tags: ["slow"] }, () => {
  /** On a page whose clock the test moves on. */
  async function open(path = "/deliveries") {
    const viewer = await stage.open({ key: account.ownKey, permissions: PERMISSIONS });
    await viewer.page.clock.install();
    await viewer.page.goto(stage.address(path, account));
    return viewer;
  }
  /** Resolves once the page has asked again. */
  async function refresh(page: Page): Promise<void> {
    const asked = page.waitForResponse((response) => response.request().headers()["x-refresh"] !== undefined);
    await page.clock.fastForward(REFRESH_MS);
    await (await asked).finished();
  }
  const names = (page: Page) => page.locator("table.log .row").allTextContents();
  const offer = (page: Page) => page.locator(".newer:not([hidden])");

  test("newer rows are offered, and no row moves", async () => {
    const { page, context, complaints } = await open();
    const before = await names(page);
    await page.locator("a:text-is('inv-3')").focus();
    const { y } = (await page.locator("a:text-is('inv-3')").boundingBox())!;
    await publishOne("new-1");
    await publishOne("new-2");
    await changeRows(
      stage.database.pool,
      "deliveries",
      { id: (await deliveryOf("inv-6")).id },
      { status: "abandoned", reason: "no_target" },
    );
    await refresh(page);
    await expect.poll(() => offer(page).textContent()).toBe("2 newer: show");
    expect(await names(page)).toEqual(before);
    await expect
      .poll(() => page.locator("tr:has(a:text-is('inv-6')) .status").textContent())
      .toContain("abandoned");
    expect((await page.locator("a:text-is('inv-3')").boundingBox())!.y).toBe(y);
    expect(await page.locator(":focus").textContent()).toBe("inv-3");
    expect(await page.locator(".tabs [aria-current]").textContent()).toBe("All 10");
    await page.click("text=2 newer");
    await expect.poll(() => names(page)).toEqual(["new-2", "new-1", ...before]);
    expect(await offer(page).count()).toBe(0);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("rows that no longer match stay, and say so", async () => {
    const { page, context } = await open("/deliveries?status=failed&status=abandoned");
    const before = await names(page);
    for (const name of ["inv-2", "inv-5"]) {
      const { id } = await deliveryOf(name);
      await changeRows(stage.database.pool, "deliveries", { id }, { status: "succeeded", reason: null });
    }
    await refresh(page);
    await expect.poll(() => offer(page).textContent()).toBe("2 no longer match: show");
    expect(await names(page)).toEqual(before);
    expect(await page.locator("tr.gone").count()).toBe(2);
    await context.close();
  });

  test("a page full of newer rows keeps those that are shown, and the way to older ones", async () => {
    for (let n = 0; n < 52; n++) await publishOne(`more-${n}`);
    const { page, context } = await open();
    const before = await names(page);
    const older = await page.locator("a[rel=next]").getAttribute("href");
    for (let n = 0; n < 60; n++) await publishOne(`newest-${n}`);
    await refresh(page);
    await expect.poll(() => offer(page).textContent()).toBe("50 or more newer: show");
    expect(await names(page)).toEqual(before);
    expect(await page.locator("a[rel=next]").getAttribute("href")).toBe(older);
    expect(await page.locator("tr.gone").count()).toBe(0);
    await context.close();
  });

  test("a live attempt shows up among those of all runs, in order, and what is open stays open", async () => {
    const { id } = await deliveryOf("inv-1");
    const { page, context, complaints } = await open(`/deliveries/${id}`);
    await page.click(".attempts summary");
    const asked = await stage.api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`, {
      key: account.ownKey,
    });
    expect(asked.status).toBe(202);
    await endAttempts(stage.database, new Map([[id, "succeeded"]]));
    await refresh(page);
    await page.waitForSelector("h3:text-is('Run 2')");
    const attempts = () => page.locator(".attempts li").evaluateAll((items) => items.map((item) => item.id));
    expect(await attempts()).toEqual(["a-2-1", "a-1-1"]);
    expect(await page.locator("#a-1-1 details[open]").count()).toBe(1);
    expect(await page.locator(":focus").evaluate((element) => element.closest("li")?.id)).toBe("a-1-1");
    const label = await page.locator("#a-2-1 .steps").getAttribute("aria-label");
    expect(label).toBe("DNS 12 ms, connect 34 ms, TLS 80 ms, first byte 900 ms, 1.2 s");
    const widths = await page
      .locator("#a-2-1 rect")
      .evaluateAll((bars) => bars.map((bar) => Number(bar.getAttribute("width"))));
    // Of 1,200 ms, the longest, with the rest for the answer's end.
    expect(widths.reduce((sum, width) => sum + width, 0)).toBeCloseTo(160, 0);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("what somebody types stays, while the log goes on", async () => {
    const { page, context } = await open();
    await page.click("text=More filters");
    await page.fill("input[name=target_host]", "hooks.");
    await publishOne("new-1");
    await refresh(page);
    await expect.poll(() => offer(page).textContent()).toBe("1 newer: show");
    expect(await page.inputValue("input[name=target_host]")).toBe("hooks.");
    await context.close();
  });

  test("a page that cannot be had says so once, and asks no more", async () => {
    const { page, context } = await open("/deliveries/01a202fb-dbd9-7000-aca3-48e0de76fa5b");
    let asked = 0;
    page.on("request", () => asked++);
    await page.clock.fastForward(60_000);
    expect([asked, await page.locator("#banner").isVisible()]).toEqual([0, false]);
    await context.close();
  });

  test("without a database the rows stay under a banner, and all recovers by itself", async () => {
    const { page, context } = await open();
    const lost = await stage.open({ key: account.ownKey });
    const before = await names(page);
    await proxy.cut();
    await refresh(page);
    await page.waitForSelector("#banner.bad >> text=cannot answer at the moment");
    expect(await names(page)).toEqual(before);
    // Whoever comes now has no rows yet.
    await lost.page.goto(stage.address("/deliveries", account));
    expect(await lost.page.locator("[data-problem=temporarily_unavailable]").count()).toBe(1);
    await proxy.restore();
    await expect
      .poll(async () => {
        await refresh(page);
        return page.locator("#banner").isVisible();
      })
      .toBe(false);
    await expect.poll(() => names(lost.page)).toEqual(before);
    await Promise.all([context.close(), lost.context.close()]);
  });

  test("whose key is revoked says that the session has ended, and asks no more", async () => {
    const { page, context } = await open();
    await changeRows(
      stage.database.pool,
      "api_keys",
      { account_id: account.accountId },
      { revoked_at: new Date() },
    );
    await refresh(page);
    await page.waitForSelector("#banner.bad >> text=This session has ended");
    let asked = 0;
    page.on("request", () => asked++);
    await page.clock.fastForward(60_000);
    expect(asked).toBe(0);
    await context.close();
  });

  test("shows its keys", async () => {
    const { page, context } = await open();
    await page.keyboard.press("?");
    expect(await page.locator("dialog[open]").textContent()).toContain("next row");
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    expect(await page.locator(":focus").getAttribute("name")).toBe("q");
    await context.close();
  });
});
