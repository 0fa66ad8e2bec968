import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { enter } from "../support/console.ts";
import { layActivity } from "../support/console-activity.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows, rowOf } from "../support/installation.ts";

const PERMISSIONS = ["webhooks:read", "webhooks:replay", "webhooks:write"];
const REFRESH_MS = 5_000;

/** What has moved since the page began, and from where to where. */
const OBSERVE = `
globalThis.moved = [];
const placeOf = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries()) {
    for (const { node, previousRect, currentRect } of sources) {
      const what = node?.textContent.trim().slice(0, 40);
      moved.push(value.toFixed(6) + " " + what + ": " + placeOf(previousRect) + " to " + placeOf(currentRect));
    }
  }
}).observe({ type: "layout-shift", buffered: true });`;

const untilPainted = (page: Page) =>
  page.evaluate(`new Promise((painted) => {
    const seen = (list) => list.getEntriesByName("first-contentful-paint").length > 0 && painted();
    new PerformanceObserver(seen).observe({ type: "paint", buffered: true });
  })`);

/** Once all frames so far have been told of. */
const movedOn = async (page: Page) => {
  const frame = "new Promise((next) => requestAnimationFrame(() => setTimeout(next)))";
  for (const _ of [1, 2]) await page.evaluate(frame);
  return await page.evaluate("moved");
};

describe("nothing moves", () => {
  let stage: BrowsedConsole;
  let deliveryPath: string;

  beforeAll(async () => {
    stage = await browseConsole();
    const { accountId } = stage.api.account;
    await layDeliveries(stage.database, accountId, { abandoned: 3, failed: 2, succeeded: 4, pending: 2 });
    await layActivity(stage.database, accountId, 2 * 3_600_000);
    const { id } = await rowOf(stage.database.pool, "deliveries", {
      account_id: accountId,
      analysis_id: "inv-1",
    });
    deliveryPath = `/deliveries/${id}`;
  });
  afterAll(async () => {
    await stage.close();
  });

  test.each([
    ["the log", () => "/deliveries"],
    ["a delivery", () => deliveryPath],
    ["the endpoint", () => "/endpoint"],
  ])("on %s when its script comes after it was painted", async (_, pathOf) => {
    const { page, context, complaints } = await stage.open({ permissions: PERMISSIONS });
    await page.addInitScript(OBSERVE);
    const painted = Promise.withResolvers<void>();
    await page.route("**/console.mjs", async (route) => {
      await painted.promise;
      await route.continue();
    });
    await page.goto(stage.address(pathOf()), { waitUntil: "commit" });
    await untilPainted(page);
    painted.resolve();
    await page.waitForSelector(".live[data-state=live]");
    expect(await movedOn(page)).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("when a page comes in two parts", async () => {
    const hand = await enter(stage.api, { permissions: PERMISSIONS });
    const rest = Promise.withResolvers<void>();
    const slow = createServer(async ({ url = "" }, response) => {
      const { text, headers } = await hand.get(url);
      response.setHeader("content-type", headers.get("content-type") ?? "");
      if (!url.endsWith("/deliveries")) return void response.end(text);
      const cut = text.indexOf("</span>", text.indexOf("counted until"));
      response.write(text.slice(0, cut));
      await rest.promise;
      response.end(text.slice(cut));
    }).listen(0, "127.0.0.1");
    await once(slow, "listening");
    const { port } = slow.address() as AddressInfo;
    const { page, context } = await stage.newViewer();
    await page.addInitScript(OBSERVE);
    await page.goto(`http://127.0.0.1:${port}${hand.base}/deliveries`, { waitUntil: "commit" });
    await expect.poll(() => page.evaluate("document.querySelectorAll('.axis span').length")).toBe(2);
    // For as long as another window takes to be painted, or until this one is.
    const other = await stage.newViewer();
    await other.page.goto(`${stage.api.url}/errors`);
    await Promise.race([untilPainted(page), untilPainted(other.page)]);
    rest.resolve();
    await page.waitForSelector("table.log");
    expect(await movedOn(page)).toEqual([]);
    await Promise.all([context.close(), other.context.close()]);
    slow.close();
    await once(slow, "close");
  });

  test("when a refresh tells of another state and a newer row", async () => {
    const { page, context } = await stage.open({ permissions: PERMISSIONS });
    await page.clock.install();
    await page.addInitScript(OBSERVE);
    await page.goto(stage.address("/deliveries"));
    const { database, api } = stage;
    const { accountId: account_id } = api.account;
    await publishAt(database.pool, account_id, new Date(), ["inv-new"]);
    const last = { account_id, analysis_id: "inv-11" };
    await changeRows(database.pool, "deliveries", last, { status: "succeeded" });
    await page.clock.fastForward(REFRESH_MS);
    await page.waitForSelector(".newer a:text-is('1 newer: show')");
    expect(await movedOn(page)).toEqual([]);
    await context.close();
  });
});
