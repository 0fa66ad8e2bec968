import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { startBrowser, type TestBrowser, type Viewer } from "../support/browser.ts";
import { newLink } from "../support/console.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { insertRow } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

const PERMISSIONS = ["webhooks:read", "webhooks:write", "webhooks:secrets", "audit:read"];

describe("the endpoint in a browser", () => {
  let database: TestDatabase;
  let api: TestApi;
  let browser: TestBrowser;
  /** Accepts whatever comes. */
  let gullible: Receiver;
  let url: string;

  beforeAll(async () => {
    database = await createTestDatabase();
    gullible = await startReceiver();
    url = gullible.url("/webhooks").href;
    api = await startTestApi(database, targetsEnv([gullible]));
    browser = await startBrowser();
  });
  afterAll(async () => {
    await browser.close();
    await api.close();
    await gullible.close();
    await database.drop();
  });

  async function open(account: TestAccount, options = {}): Promise<Viewer & { readonly base: string }> {
    const viewer = await browser.newViewer(options);
    const link = await newLink(api, { key: account.ownKey, permissions: PERMISSIONS, path: "/endpoint" });
    await viewer.page.goto(link.href);
    await viewer.page.waitForURL(/\/endpoint$/);
    return { ...viewer, base: `${api.url}/console/a/${account.accountId}/endpoint` };
  }

  test("an endpoint is set, checked, and its secret shown and hidden", async () => {
    const { page, context, complaints } = await open(await api.newAccount());
    await page.fill("#url", url);
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=Saved:");
    // What comes from outside is never a link.
    expect(await page.locator(`a:has-text("${url}")`).count()).toBe(0);
    const sent = gullible.requests.length;
    await page.dblclick("text=Check the receiver");
    await page.waitForSelector("text=dangerous");
    expect(await page.locator("section.panel").first().textContent()).toContain("does not verify signatures");
    expect(gullible.requests).toHaveLength(sent + 17);
    await page.click("nav.way a");
    await page.click("text=Reveal");
    expect(await page.locator("pre").textContent()).toMatch(/^whsec_/);
    await page.click("text=Hide");
    await page.waitForURL(/\/endpoint$/);
    expect(await page.content()).not.toMatch(/whsec_[A-Za-z0-9]/);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("all of it works without scripts", async () => {
    const account = await api.newAccount();
    const viewer = await open(account);
    const storageState = await viewer.context.storageState();
    await viewer.context.close();
    const { page, context } = await browser.newViewer({ javaScriptEnabled: false, storageState });
    await page.goto(viewer.base);
    await page.fill("#url", "http://hooks.example.com");
    await page.click("text=Save");
    expect(await page.locator("#url-refusal").textContent()).toContain("https://");
    expect(await page.inputValue("#url")).toBe("http://hooks.example.com");
    await page.fill("#url", url);
    await page.click("text=Save");
    await page.click("text=Send test event");
    await page.click("a:text-is('see its delivery')");
    await page.waitForSelector("h1:has-text('example-')");
    await page.goto(viewer.base);
    await page.click("text=Check the receiver");
    await page.waitForSelector("h1:has-text('Receiver check')");
    await page.click("nav.way a");
    await page.click("a:text-is('Rotate')");
    await page.selectOption("select", { label: "1 hour" });
    await page.click("button:text-is('Rotate')");
    await page.click("button:text-is('Reveal')");
    await page.waitForSelector("pre >> nth=1");
    await page.click("text=Hide");
    // Again, while the overlap lasts: only with the box ticked, which the browser asks for.
    await page.click("a:text-is('Rotate')");
    await page.click("button:text-is('Rotate')");
    await page.check("input[name=end_previous]");
    await page.click("button:text-is('Rotate')");
    await page.waitForURL(/done=rotated/);
    await page.click("a:text-is('Remove')");
    await page.click("button:text-is('Remove')");
    await page.waitForSelector("h2:has-text('No endpoint yet')");
    await context.close();
  });

  /** Of a program that has read to then; `more` of its row. */
  const addConsumer = (account: TestAccount, name: string, daysAgo: number, more = {}) =>
    insertRow(database.pool, "feed_consumers", {
      account_id: account.accountId,
      name,
      position: Math.floor((Date.now() - daysAgo * DAY_MS) * 1_000),
      updated_at: new Date(),
      key_id: randomUUID(),
      ...more,
    });

  test("who fetches events is shown with how far it has come, and removed, without scripts", async () => {
    const account = await api.newAccount();
    const viewer = await open(account);
    const storageState = await viewer.context.storageState();
    const section = viewer.page.locator("section[aria-labelledby=consumers]");
    expect(await section.textContent()).toContain("None yet.");
    await section.locator("summary").click();
    expect(await section.locator("pre").textContent()).toMatch(/pullWebhooks\(.*consumer: "billing"/s);
    await viewer.context.close();

    await addConsumer(account, "billing", -0.01);
    await addConsumer(account, "archive", 2, { other_seen_at: new Date() });
    await addConsumer(account, "old.one", 8);
    const position = Date.now() * 1_000;
    for (const n of [0, 1]) {
      const event = { account_id: account.accountId, position: position + n, delivery_id: randomUUID() };
      await insertRow(database.pool, "feed", event);
    }
    const { page, context, complaints } = await browser.newViewer({ javaScriptEnabled: false, storageState });
    await page.goto(viewer.base);
    const texts = await page.locator("table.consumers tbody tr").allTextContents();
    const rows = texts.map((text) => text.replaceAll(/\s+/g, " ").trim());
    expect(rows).toEqual([
      expect.stringMatching(/^archive○ 2 events behind, the oldest under 1 min ago.*Remove archive$/),
      expect.stringMatching(/^▲ Two readers use this name, last seen/),
      expect.stringMatching(/^billing✓ has read everything.*\(under 1 min ago\)/),
      expect.stringMatching(/^old\.one✕ too far behind/),
      expect.stringMatching(/^It is refused/),
    ]);
    await page.click("a:has-text('Remove old.one')");
    await page.waitForSelector("h1:has-text('Remove this consumer?')");
    await page.click("a:text-is('Keep it')");
    await page.click("a:has-text('Remove old.one')");
    await page.click("button:text-is('Remove')");
    await page.waitForSelector("text=Removed: whoever reads under that name begins at the oldest event.");
    expect(await page.locator("table.consumers tbody tr").count()).toBe(3);
    await page.goto(viewer.base.replace(/endpoint$/, "audit"));
    expect(await page.locator("main").textContent()).toContain("removed the consumer old.one of events");
    expect(complaints).toEqual([]);
    expect((await page.goto(`${viewer.base}/consumers/old.one/remove`))!.status()).toBe(404);
    await context.close();
  });

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360])(
      "at %i px no screen has a fault that axe finds, or scrolls sideways",
      async (width) => {
        const account = await api.newAccount();
        const { page, context, base } = await open(account, {
          viewport: { width, height: 800 },
          colorScheme,
        });
        const look = async (what: string) => {
          expect([what, await faultsOf(page)]).toEqual([what, []]);
          if (width > 640) return;
          await page.setViewportSize({ width: 320, height: 800 });
          const wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
          expect([what, wide]).toEqual([what, false]);
          await page.setViewportSize({ width, height: 800 });
        };
        await look("empty");
        await page.fill("#url", `http://${"a".repeat(300)}.example.com`);
        await page.click("text=Save");
        await page.waitForSelector("#url-refusal");
        await look("refused");
        const headers = [{ name: `x-${"g".repeat(90)}`, value: "v".repeat(500), secret: false }];
        await api.ask("PUT", "/v1/webhooks/endpoint", { key: account.ownKey, body: { url, headers } });
        await api.ask("POST", "/v1/webhooks/signing-secret/rotate", { key: account.ownKey });
        await addConsumer(account, "c".repeat(64), 8, { other_seen_at: new Date() });
        const remove = `/consumers/${"c".repeat(64)}/remove`;
        for (const path of ["", "?done=set", "/remove", "/change", "/secret/rotate", "/headers", remove]) {
          await page.goto(base + path);
          await look(path);
        }
        await page.goto(base);
        await page.click("button:text-is('Pause')");
        await page.waitForURL(/done=paused/);
        await look("paused");
        await page.click("button:text-is('Resume')");
        await page.waitForURL(/done=resumed/);
        await page.keyboard.press("?");
        await look("keys");
        await page.keyboard.press("Escape");
        await page.click("nav >> text=Changes");
        await page.waitForSelector("table.audit");
        await look("changes");
        await page.goto(base);
        await page.click("text=Check the receiver");
        await page.waitForSelector("text=dangerous");
        await look("report");
        await page.click("text=Check again");
        await page.waitForSelector("text=once a minute");
        await look("too soon");
        await page.goto(base);
        await page.click("text=Reveal");
        await page.waitForSelector("pre");
        await look("revealed");
        await context.close();
      },
    );
  });
});
