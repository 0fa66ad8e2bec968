import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { enter, postForm } from "../support/console.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { faultsOf } from "../support/page-faults.ts";
import { enterAsStaff } from "../support/staff.ts";

const CHOOSE = "/console/time-zone";
const REFRESH_MS = 5_000;
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
/** Of yesterday: today's may be still to come. The newest delivery is of this moment. */
const NOON = new Date(Date.now() - DAY_MS).setUTCHours(12, 0, 0, 0);

let stage: BrowsedConsole;

beforeAll(async () => {
  stage = await browseConsole();
  const shown = { abandoned: 2, failed: 0, succeeded: 0, pending: 0 };
  await layDeliveries(stage.database, stage.api.account.accountId, shown, NOON + 60_000);
});
afterAll(async () => {
  await stage.close();
});

/** As the console writes it. */
function noonIn(zone: string): string {
  // "2026-11-22 13:00:00" in Sweden.
  const [date = "", time] = new Date(NOON).toLocaleString("sv-SE", { timeZone: zone }).split(" ");
  const [year, month, day] = date.split("-").map(Number);
  return `${day} ${MONTHS[month! - 1]} ${year}, ${time}`;
}

/** What a browser would send from then on. */
const chosen = (set: string | null) => (set ?? "").split(";")[0]!;

describe("the zone that times are shown in", () => {
  test("is the link's, until the viewer chooses another, for every page", async () => {
    const hand = await enter(stage.api, { time_zone: "Europe/Berlin" });
    const log = `${hand.base}/deliveries`;
    expect((await hand.get(log)).text).toContain(noonIn("Europe/Berlin"));
    const to = `${log}?status=abandoned`;
    const answer = await hand.post(CHOOSE, { zone: "Asia/Kathmandu", to });
    expect([answer.status, answer.headers.get("location")]).toEqual([303, to]);
    const set = answer.headers.get("set-cookie")!;
    expect(set).toMatch(/^__Host-sp-zone=Asia\/Kathmandu; Max-Age=31536000; Path=\/; HttpOnly; Secure; /);
    const cookie = `${hand.cookie}; ${chosen(set)}`;
    const refreshed = await hand.get(log, { cookie, "x-refresh": "1" });
    expect(refreshed.text).toContain(noonIn("Asia/Kathmandu"));
    // A time that is typed in is one of that zone, too.
    const noon = new Date(NOON).toISOString();
    const filtered = await hand.get(`${log}?from=${noon.slice(0, 10)}T17:45`, { cookie });
    expect(filtered.headers.get("location")).toContain(`created_after=${encodeURIComponent(noon)}`);
    // What it keeps from before is not the same page.
    const tag = (await hand.get(log, { "x-refresh": "1" })).headers.get("etag")!;
    const again = { "x-refresh": "1", "if-none-match": tag };
    expect((await hand.get(log, again)).status).toBe(304);
    expect((await hand.get(log, { ...again, cookie })).status).toBe(200);
  });

  test("is staff's own, too", async () => {
    const staff = await enterAsStaff(stage.api, { key: await stage.api.newKey(null) });
    const log = `/console/staff/a/${stage.api.account.accountId}/deliveries`;
    expect((await staff.get(log)).text).toContain(noonIn("UTC"));
    const { headers } = await staff.post(CHOOSE, { zone: "Asia/Kathmandu", to: log });
    const cookie = `${staff.cookie}; ${chosen(headers.get("set-cookie"))}`;
    expect((await staff.get(log, { cookie })).text).toContain(noonIn("Asia/Kathmandu"));
  });

  test.each([
    [{ zone: "Berlin", to: "/console/staff" }],
    [{ zone: "", to: "/console/staff" }],
    [{ to: "/console/staff" }],
    [{ zone: "UTC", to: "https://elsewhere.example/" }],
    [{ zone: "UTC", to: "/console/staffage" }],
    [{ zone: "UTC", to: "//elsewhere.example/console/staff" }],
    [{ zone: "UTC" }],
  ])("is not changed by %j", async (form) => {
    const { status, headers } = await postForm(stage.api.url, CHOOSE, form);
    expect([status, headers.get("set-cookie"), headers.get("location")]).toEqual([400, null, null]);
  });

  test("is nobody else's to choose", async () => {
    const form = { zone: "UTC", to: "/console/staff" };
    const answer = await postForm(stage.api.url, CHOOSE, form, { "sec-fetch-site": "same-site" });
    expect([answer.status, answer.headers.get("set-cookie")]).toEqual([403, null]);
  });

  test("is the link's where the cookie is none", async () => {
    const hand = await enter(stage.api, { time_zone: "Europe/Berlin" });
    const cookie = `${hand.cookie}; __Host-sp-zone=Nowhere%2F%3Cb%3E`;
    expect((await hand.get(`${hand.base}/deliveries`, { cookie })).text).toContain(noonIn("Europe/Berlin"));
  });
});

describe("in a browser", { tags: ["slow"] }, () => {
  const shown = (page: Page) => page.locator("table.log time").first().getAttribute("title");

  test("the browser's own zone is a click away, and stays through refreshes and on other pages", async () => {
    const options = { timezoneId: "America/St_Johns" };
    const { page, context, complaints } = await stage.open({ time_zone: "Europe/Berlin" }, options);
    await page.clock.install();
    await page.reload();
    expect(await shown(page)).toBe(noonIn("Europe/Berlin"));
    await page.click(".times summary");
    expect(await faultsOf(page)).toEqual([]);
    await page.click("text=America/St_Johns, as on this computer");
    await expect.poll(() => shown(page)).toBe(noonIn("America/St_Johns"));
    expect(await page.locator(".times summary").textContent()).toBe("Times in America/St_Johns");
    const asked = page.waitForResponse((response) => response.request().headers()["x-refresh"] !== undefined);
    await page.clock.fastForward(REFRESH_MS);
    await (await asked).finished();
    expect(await shown(page)).toBe(noonIn("America/St_Johns"));
    await page.click("table.log td a");
    await page.waitForSelector(".facts");
    expect(await page.locator(".facts time").first().textContent()).toBe(noonIn("America/St_Johns"));
    await page.click(".times summary");
    await page.click(".times button:text-is('UTC')");
    await page.waitForSelector(".times summary:has-text('UTC')");
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("what hangs open is closed by a click elsewhere, and stays open through a refresh", async () => {
    const { page, context } = await stage.open({}, { timezoneId: "Europe/Berlin" });
    await page.clock.install();
    await page.reload();
    await page.click(".times summary");
    await stage.database.pool.query("update sealpost.accounts set name = 'Acme' where id = $1", [
      stage.api.account.accountId,
    ]);
    const asked = page.waitForResponse((response) => response.request().headers()["x-refresh"] !== undefined);
    await page.clock.fastForward(REFRESH_MS);
    await (await asked).finished();
    expect(await page.locator(".times button[data-local]").isVisible()).toBe(true);
    await page.click("h1");
    expect(await page.locator(".times[open]").count()).toBe(0);
    await context.close();
  });

  test("without scripts a zone is typed", async () => {
    const { page, context } = await stage.openWithoutScript({ time_zone: "Europe/Berlin" });
    await page.click(".times summary");
    expect(await page.locator(".times button[data-local]").isVisible()).toBe(false);
    await page.fill(".times input:visible", "Asia/Kathmandu");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".times summary:has-text('Asia/Kathmandu')");
    expect(await shown(page)).toBe(noonIn("Asia/Kathmandu"));
    await context.close();
  });
});
