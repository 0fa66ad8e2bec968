import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Frame, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startBrowser, startViewer, type TestBrowser } from "../support/browser.ts";
import { type LinkWish, newLink, postForm, request, tokenOf } from "../support/console.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { changeRows } from "../support/installation.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { startTlsFront, type TlsFront } from "../support/tls-front.ts";

/** The console's host; those of one site with it; and another site's. */
const CONSOLE = "console.sealpost.localhost";
const SIBLING = "docs.sealpost.localhost";
const HOST = "app.customer.localhost";
const STRANGER = "elsewhere.localhost";
const COOKIE_TEST = "kept=1; Path=/; Secure; SameSite=None";

const support = readFileSync(new URL("../../docs/support.md", import.meta.url), "utf8");
const [, asDocumented = ""] = /```html\n([^`]*embed\.js[^`]*)```/.exec(support) ?? [];
const END = "text=Reload this page to go on.";

let database: TestDatabase;
let api: TestApi;
/** Everybody else's pages. */
let pages: Server;
let fronts: readonly TlsFront[];
let port: number;
let url: string;

const origin = (name: string) => `https://${name}:${port}`;

beforeAll(async () => {
  database = await createTestDatabase();
  pages = createServer((asked, answer) => {
    const { pathname, searchParams } = new URL(asked.url!, "https://any.localhost");
    if (pathname === "/cookie") {
      answer.writeHead(200, { "content-type": "text/html", "set-cookie": COOKIE_TEST });
      answer.end(`<p>${asked.headers.cookie ?? "none"}`);
      return;
    }
    answer.writeHead(200, { "content-type": "text/html" });
    const snippet = asDocumented
      .replace("https://sealpost.example.com", url)
      .replace('"LINK"', JSON.stringify(searchParams.get("link") ?? "about:blank"));
    answer.end(`<!doctype html><title>Host</title>
<script>
  addEventListener("message", ({ origin, data }) => { (window.heard ??= []).push([origin, data.type]); });
</script>
${snippet}`);
  });
  await new Promise<void>((resolve) => pages.listen(0, "127.0.0.1", resolve));
  const front = await startTlsFront([SIBLING, HOST, STRANGER], (pages.address() as AddressInfo).port);
  port = front.port;
  api = await startTestApi(database, { CONSOLE_ANCESTORS: [origin(HOST), origin(SIBLING)].join(",") });
  await layDeliveries(database, api.account.accountId, { abandoned: 3, failed: 2, succeeded: 4, pending: 2 });
  const before = await startTlsFront([CONSOLE], Number(new URL(api.url).port));
  url = `https://${CONSOLE}:${before.port}`;
  fronts = [front, before];
});
afterAll(async () => {
  await api.close();
  await Promise.all(fronts.map((front) => front.close()));
  pages.close();
  await database.drop();
});

async function linkFor(wish: LinkWish = {}): Promise<string> {
  const { pathname, search, hash } = await newLink(api, { embed_origin: origin(HOST), ...wish });
  return url + pathname + search + hash;
}
const hostPage = (name: string, link: string) => `${origin(name)}/?link=${encodeURIComponent(link)}`;
const heard = (page: Page) => page.evaluate("window.heard ?? []");

/** The frame, once it shows something of the console's. */
async function framed(page: Page): Promise<Frame> {
  const element = await page.waitForSelector("#webhooks");
  const frame = (await element.contentFrame())!;
  await frame.waitForURL(/\/console\/a\//);
  await frame.waitForSelector("h1");
  return frame;
}

/** Presses by script: the host resizes its frame meanwhile, and a pointer's events may go to where it was. */
const press = (frame: Frame, selector: string) =>
  frame.locator(selector).evaluate((element) => (element as unknown as { click(): void }).click());

describe("the script for pages that embed the console", () => {
  test("is small, for every origin, and at one address", async () => {
    const { status, headers, text } = await request(api.url, "GET", "/console/embed.js", {});
    expect([status, headers.get("cross-origin-resource-policy")]).toEqual([200, "cross-origin"]);
    expect(headers.get("content-type")).toMatch(/^text\/javascript/);
    expect(Buffer.byteLength(text)).toBeLessThan(1_500);
  });
});

describe("a page without a session", () => {
  const ancestorsOf = ({ headers }: { headers: Headers }) =>
    /frame-ancestors ([^;]+)/.exec(headers.get("content-security-policy")!)![1];

  const unknown = { t: "A".repeat(43) };
  const enter = (search = "", headers = {}) =>
    request(api.url, "GET", `/console/enter${search}`, headers).then(ancestorsOf);
  const post = (embed: string) =>
    postForm(api.url, "/console/enter", { ...unknown, embed }).then(ancestorsOf);
  const left = (cookie: string) =>
    request(api.url, "GET", "/console/left", { cookie: `__Host-sp-frame=${cookie}` }).then(ancestorsOf);
  const tagFor = async (name: string) => {
    const { search } = await newLink(api, { embed_origin: origin(name) });
    return new URLSearchParams(search).get("frame")!;
  };

  test("is framed by the origin that its link was made for", async () => {
    const tags = { [HOST]: await tagFor(HOST), [SIBLING]: await tagFor(SIBLING) };
    for (const [name, tag] of Object.entries(tags)) {
      expect(await enter(`?frame=${tag}`)).toBe(origin(name));
      expect(await post(tag)).toBe(origin(name));
      expect(await left(tag)).toBe(origin(name));
    }
    expect((await newLink(api)).search).toBe("");
  });

  test("tells nobody who has no such link which origins may frame it, however they ask", async () => {
    const allowed = [origin(HOST), origin(SIBLING)];
    const guesses = [...allowed, origin(STRANGER), "", "A".repeat(22), (await tagFor(HOST)).slice(1)];
    for (const guess of guesses) {
      const answers = [
        await enter("", { referer: `${guess}/page`, origin: guess }),
        await enter(`?frame=${encodeURIComponent(guess)}`),
        await enter(`?frame=${encodeURIComponent(guess)}&frame=x`),
        await post(guess),
        await left(encodeURIComponent(guess)),
      ];
      expect([guess, ...answers]).toEqual([guess, ...Array(5).fill("'none'")]);
    }
  });
});

describe("in a browser", { tags: ["slow"] }, () => {
  let browser: TestBrowser;
  beforeAll(async () => {
    browser = await startBrowser();
  });
  afterAll(() => browser.close());
  const newViewer = () => browser.newViewer({ ignoreHTTPSErrors: true });

  test("a frame is as high as its page, and its host learns that its session has ended", async () => {
    const { page, context, complaints } = await newViewer();
    await page.goto(hostPage(HOST, await linkFor()));
    const frame = await framed(page);
    expect(await frame.locator("table.log tr[id]").count()).toBe(11);
    const height = async () => [
      await page
        .locator("#webhooks")
        .evaluate((element) => (element as unknown as { offsetHeight: number }).offsetHeight),
      await frame.evaluate("document.documentElement.offsetHeight"),
    ];
    await expect.poll(async () => new Set(await height()).size).toBe(1);
    const [log] = await height();
    await press(frame, "a:text-is('Endpoint')");
    await frame.waitForSelector("h1:text-is('Endpoint')");
    await expect.poll(async () => new Set(await height()).size).toBe(1);
    expect((await height())[0]).not.toBe(log);
    expect(await page.locator(END).count()).toBe(0);
    await changeRows(database.pool, "console_sessions", { revoked_at: null }, { revoked_at: new Date() });
    await press(frame, "a:text-is('Deliveries')");
    await page.waitForSelector(END);
    expect(complaints.filter((text) => !text.includes("401"))).toEqual([]);
    await context.close();
  });

  test("a frame that is left tells its host so, and a link that has been used, too", async () => {
    const { page, context } = await newViewer();
    const link = await linkFor();
    await page.goto(hostPage(HOST, link));
    await press(await framed(page), "text=Leave");
    await page.waitForSelector(END);
    await page.goto(hostPage(HOST, link));
    await page.waitForSelector(END);
    await context.close();
  });

  test.each([
    ["an origin that may frame nothing", STRANGER, {}],
    ["another than the link's", SIBLING, {}],
    ["the host, with a link for nobody", HOST, { embed_origin: undefined }],
  ])("it is not shown by %s", async (_, name, wish) => {
    const { page, context } = await newViewer();
    const refused = page.waitForEvent("console", (message) => message.text().includes("frame-ancestors"));
    await page.goto(hostPage(name, await linkFor(wish)));
    await refused;
    expect(await page.frameLocator("#webhooks").locator("main").count()).toBe(0);
    if (name === STRANGER) expect(await heard(page)).toEqual([]);
    await context.close();
  });

  test("staff's pages are shown by nobody", async () => {
    const { page, context } = await newViewer();
    const refused = page.waitForEvent("console", (message) => message.text().includes("frame-ancestors"));
    await page.goto(hostPage(HOST, `${url}/console/staff`));
    await refused;
    await context.close();
  });

  test("a frame works where third-party cookies are blocked", async () => {
    const { page, context } = await startViewer({ cookie_controls_mode: 1, block_third_party_cookies: true });
    // They are: a stranger's cookie does not come back from a frame.
    await page.goto(`${origin(STRANGER)}/cookie`);
    await page.reload();
    expect(await page.textContent("p")).toContain("kept=1");
    await page.goto(hostPage(HOST, `${origin(STRANGER)}/cookie`));
    expect(await page.frameLocator("#webhooks").locator("p").textContent()).toBe("none");

    await page.goto(hostPage(HOST, await linkFor({ permissions: ["webhooks:read", "webhooks:replay"] })));
    const frame = await framed(page);
    await press(frame, "a:text-is('inv-1')");
    await press(frame, "button.primary");
    await frame.waitForSelector("text=Queued: run 2 starts now.");
    await context.close();
  });

  test("in a frame of the same site and in a tab, the session and the zone that are newest count", async () => {
    const { page: tab, context } = await newViewer();
    const zoneOf = (page: Page | Frame) => page.locator(".times summary").textContent();
    const choose = async (page: Page | Frame, zone: string) => {
      await page.click(".times summary");
      await page.fill(".times input:visible", zone);
      await page.click(".times button:text-is('Show')");
      await page.waitForSelector(`.times summary:has-text('${zone}')`);
    };
    await tab.goto(await linkFor({ embed_origin: undefined, viewer: { id: "u-1", label: "In a tab" } }));
    await tab.waitForSelector(".viewer:text-is('In a tab')");
    await choose(tab, "Asia/Kathmandu");

    const host = await context.newPage();
    const wish = { embed_origin: origin(SIBLING), viewer: { id: "u-2", label: "In a frame" } };
    await host.goto(hostPage(SIBLING, await linkFor(wish)));
    const frame = await framed(host);
    expect(await frame.textContent(".viewer")).toBe("In a frame");
    await choose(frame, "Europe/Berlin");
    await tab.reload();
    expect(await zoneOf(tab)).toContain("Europe/Berlin");
    await choose(tab, "Asia/Kathmandu");
    await press(frame, "a:text-is('Endpoint')");
    await frame.waitForSelector("h1:text-is('Endpoint')");
    expect(await zoneOf(frame)).toContain("Asia/Kathmandu");

    await tab.goto(
      await linkFor({ embed_origin: undefined, viewer: { id: "u-3", label: "In a tab again" } }),
    );
    await tab.waitForSelector(".viewer:text-is('In a tab again')");
    await context.close();
  });

  test("where not even a frame's own cookie is kept, the link is left for a tab", async () => {
    const { page, context } = await startViewer({ default_content_setting_values: { cookies: 2 } });
    const link = await linkFor();
    await page.goto(hostPage(HOST, link));
    const way = page.frameLocator("#webhooks").locator("a:text-is('open the console in a new tab')");
    await way.waitFor();
    expect(await way.getAttribute("href")).toBe(link);
    const entered = await postForm(api.url, "/console/enter", { t: tokenOf(new URL(link)) });
    expect(entered.status).toBe(303);
    await context.close();
  });

  test("a POST from a sibling origin or another site is refused, whatever cookie comes along", async () => {
    for (const wish of [{ embed_origin: undefined }, {}]) {
      const { page, context } = await newViewer();
      await page.goto(await linkFor(wish));
      await page.waitForURL(/\/deliveries/);
      const action = `${url}/console/a/${api.account.accountId}/leave`;
      for (const name of [SIBLING, STRANGER]) {
        const other = await context.newPage();
        await other.goto(origin(name));
        const [response] = await Promise.all([
          other.waitForResponse(action),
          other.evaluate(
            `const form = Object.assign(document.createElement("form"), { method: "post", action: "${action}" });
             document.body.append(form);
             form.submit()`,
          ),
        ]);
        expect([name, response.status()]).toEqual([name, 403]);
        await other.close();
      }
      await page.reload();
      expect(await page.textContent("h1")).toBe("Deliveries");
      const answer = await page.evaluate(`fetch("/v1/webhooks/deliveries").then(({ status }) => status)`);
      expect(answer).toBe(401);
      await context.close();
    }
  });
});
