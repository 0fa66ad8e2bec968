import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { digestSecret } from "../../src/http/api-keys.ts";
import { startBrowser, type TestBrowser, type Viewer } from "../support/browser.ts";
import { layDeliveries, layReplay } from "../support/console-deliveries.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { faultsOf } from "../support/page-faults.ts";
import { startTestApi, type TestApi } from "../support/sealpost-api.ts";
import { signIn } from "../support/staff.ts";

const FRONT = "/console/staff";

/** Which element has the focus; empty: none. */
const FOCUSED = `document.activeElement === document.body ? "" :
  String([...document.querySelectorAll("*")].indexOf(document.activeElement))`;

/** Three accounts in trouble, each in its own. */
const FAILING = [
  { name: "Acme, Inc.", abandoned: 100, url: "https://hooks.acme.example/in", errorCode: "connect_refused" },
  {
    name: "Globex Corporation",
    abandoned: 120,
    url: "https://in.globex.example/w",
    errorCode: "tls_expired",
  },
  { name: "Initech", abandoned: 80, url: "https://api.initech.example/hook", errorCode: "status_503" },
] as const;

describe("support staff in a browser", () => {
  let database: TestDatabase;
  let api: TestApi;
  let browser: TestBrowser;
  let key: string;
  const ids = new Map<string, string>();

  beforeAll(async () => {
    database = await createTestDatabase();
    api = await startTestApi(database, { CONSOLE_ANCESTORS: "https://app.example.com" });
    browser = await startBrowser();
    key = await api.newKey(null);
    await database.pool.query("update sealpost.api_keys set name = 'Sam' where digest = $1", [
      digestSecret(key),
    ]);
    await rename(api.account.accountId, "Hooli");
    for (const { name, abandoned, url, errorCode } of FAILING) {
      const { accountId } = await api.newAccount();
      await rename(accountId, name);
      ids.set(name, accountId);
      const statusCode = errorCode === "status_503" ? 503 : null;
      const failure = { url, errorCode, statusCode };
      const shown = { abandoned, failed: 0, succeeded: 1, pending: 0 };
      await layDeliveries(database, accountId, shown, Date.now(), failure);
    }
  });
  afterAll(async () => {
    await browser.close();
    await api.close();
    await database.drop();
  });

  const rename = (id: string, name: string) =>
    database.pool.query("update sealpost.accounts set name = $2 where id = $1", [id, name]);
  const address = (path: string) => `${api.url}${path}`;
  const accountPath = (name: string) => `${FRONT}/a/${ids.get(name)}`;

  /** Signed in, at the first page or wherever asked. */
  async function open(path: string = FRONT, options = {}, text: string = key): Promise<Viewer> {
    const viewer = await browser.newViewer(options);
    await viewer.page.goto(address(path));
    await viewer.page.fill("input[name=key]", text);
    await viewer.page.click("text=Sign in >> nth=-1");
    await viewer.page.waitForURL((url) => url.pathname + url.search === path);
    return viewer;
  }

  test("find what is wrong with one of three accounts and replay its deliveries, in at most five clicks", async () => {
    const viewer = await browser.newViewer();
    const { page, complaints } = viewer;
    let clicks = 0;
    const click = async (what: string) => {
      clicks += 1;
      await page.click(what);
    };
    await page.goto(address(FRONT));
    // Chromium's own word for a page that is a 401.
    expect(complaints.splice(0)).toEqual([expect.stringContaining("401")]);
    await page.fill("input[name=key]", key);
    await click("button:has-text('Sign in')");
    // Whose deliveries fail, by what, most first.
    expect(await page.locator(".failing-accounts h3").allTextContents()).toEqual([
      "Globex Corporation",
      "Acme, Inc.",
      "Initech",
    ]);
    const acme = page.locator(".failing-accounts li", { hasText: "Acme, Inc." });
    expect(await acme.locator(".cause").textContent()).toMatch(
      /^hooks\.acme\.example connect_refused The receiver/,
    );
    await click(".failing-accounts li:has-text('Acme, Inc.') >> text=Open");
    expect(await page.locator("tr.group").first().textContent()).toContain("connection");
    await click(".bar a.button");
    expect(await page.locator("#matched").textContent()).toBe("100 deliveries match");
    await click("text=Replay 100");
    await page.waitForSelector("text=Queued: they start at 10 a second.");
    expect(clicks).toBeLessThanOrEqual(5);
    expect(page.url()).toContain(`${accountPath("Acme, Inc.")}/replays/`);
    const { rows } = await database.pool.query(
      "select r.account_id, r.matched, r.created_by, r.created_by_viewer from sealpost.replays r",
    );
    expect(rows).toEqual([
      { account_id: ids.get("Acme, Inc."), matched: 100, created_by: "staff_key", created_by_viewer: "Sam" },
    ]);
    // It is told where it can be seen, and by whom.
    await page.click("header >> text=Support");
    expect(await page.locator("#going + .replays").textContent()).toContain("Sam");
    expect(await page.locator("table.audit tr[id]").first().textContent()).toMatch(
      /Sam.*replayed 100 deliveries.*Acme/s,
    );
    expect(complaints).toEqual([]);
    await viewer.context.close();
  });

  test("see on the first page which replay fails, why and since when, and stop it there", async () => {
    const account = await api.newAccount();
    await rename(account.accountId, "Umbrella");
    await layDeliveries(database, account.accountId, { abandoned: 4, failed: 0, succeeded: 0, pending: 0 });
    const replay = await layReplay(database, api, account);
    await replay.endStarted(["failed"], ["failed"]);
    const { page, context } = await open();
    expect(await page.locator(".failing-accounts li:has-text('Umbrella') .fine").innerText()).toMatch(
      /^Since .*\d\d:\d\d:\d\d \(\d+ min ago\)\./,
    );
    const mineOf = (shown: Page) => shown.locator("#going + .replays li", { hasText: "Umbrella" });
    const mine = mineOf(page);
    expect(await mine.innerText()).toContain("2 failing: status_503 2");
    expect(await mine.innerText()).toContain("None has arrived yet. Stop?");
    expect(await faultsOf(page)).toEqual([]);
    // Who may not replay is not offered to stop.
    const watcher = await open(FRONT, {}, await api.newKey(null, ["staff:read"]));
    expect(await mineOf(watcher.page).innerText()).toContain("None has arrived yet.");
    expect(await mineOf(watcher.page).locator("button").count()).toBe(0);
    await watcher.context.close();
    await mine.locator("button:has-text('Stop')").click();
    await page.waitForSelector("text=Stopped: no more are started");
    expect(page.url()).toContain(`${FRONT}/a/${account.accountId}/replays/${replay.id}`);
    await context.close();
  });

  test("go by keyboard: one h1, a skip link first, and all that can be done by Tab", async () => {
    const { page, context } = await open();
    for (const path of [
      FRONT,
      `${FRONT}/audit`,
      `${FRONT}/search?q=Acme`,
      `${accountPath("Initech")}/deliveries`,
    ]) {
      await page.goto(address(path));
      expect(await page.locator("h1").count()).toBe(1);
      await page.keyboard.press("Tab");
      expect(await page.evaluate("document.activeElement.textContent")).toBe("Skip to content");
      const reached = new Set<string>();
      let last = "";
      for (let n = 0; n < 400; n++) {
        await page.keyboard.press("Tab");
        const at = (await page.evaluate(FOCUSED)) as string;
        // A field for a time has several parts.
        if (at === "" || (reached.has(at) && at !== last)) break;
        reached.add(at);
        last = at;
      }
      const wanted = await page
        .locator("main a:visible, main button:visible, main input:visible:not([type=hidden])")
        .count();
      expect(reached.size, path).toBeGreaterThanOrEqual(wanted);
    }
    await page.goto(address(FRONT));
    await page.keyboard.press("/");
    await page.keyboard.type("inv-3");
    await page.keyboard.press("Enter");
    await page.waitForURL(/search\?q=inv-3/);
    await context.close();
  });

  test("find by an account's name, a delivery's id, the beginning of it, and an analysis", async () => {
    const { page, context } = await open();
    const { rows } = await database.pool.query(
      "select id from sealpost.deliveries where account_id = $1 and analysis_id = 'inv-7'",
      [ids.get("Initech")],
    );
    const [{ id }] = rows as [{ id: string }];
    const search = async (text: string) => {
      await page.goto(address(FRONT));
      await page.fill("main input[name=q]", text);
      await page.click("main >> text=Search");
      return await page.locator("main table").allTextContents();
    };
    expect((await search("initech")).join()).toContain(ids.get("Initech"));
    for (const text of [id, id.slice(0, 28)]) expect((await search(text)).join()).toContain(id);
    expect((await search("inv-7")).join()).toMatch(/Initech/);
    await page.click("table.log a >> nth=0");
    await page.waitForURL(/\/console\/staff\/a\/.*\/deliveries\//);
    expect(await page.locator("h1").textContent()).toBe("inv-7");
    expect(await search("nobody at all")).toEqual([]);
    await context.close();
  });

  test("are told within seconds that their key was revoked, and the rows stay", async () => {
    const mine = await api.newKey(null);
    const { page, context } = await open(FRONT, {}, mine);
    await database.pool.query("update sealpost.api_keys set revoked_at = now() where digest = $1", [
      digestSecret(mine),
    ]);
    await page.waitForSelector(
      "#banner:has-text('This session has ended: reload the page to sign in again.')",
    );
    expect(await page.locator(".failing-accounts h3").count()).toBeGreaterThan(0);
    await page.reload();
    expect(await page.locator("h1").textContent()).toBe("Sign in to support");
    await context.close();
  });

  test("have a key in no address, storage, cookie or page", async () => {
    const { page, context } = await open(`${FRONT}/audit?actor=staff_key`);
    const told = await page.evaluate(
      "[location.href, document.cookie, ...[localStorage, sessionStorage].map(JSON.stringify)].join()",
    );
    expect(told).not.toContain(key);
    expect(await page.content()).not.toContain(key);
    await page.goBack();
    expect(await page.content()).not.toContain(key);
    await context.close();
  });

  test("work without scripts", async () => {
    const { page, context } = await open(FRONT, { javaScriptEnabled: false });
    await page.fill("main input[name=q]", "Initech");
    await page.click("main >> text=Search");
    await page.click("table.log a");
    await page.click("text=Needs attention");
    await page.click(".bar a.button");
    await page.click("text=Replay 80");
    expect(await page.locator("h1").textContent()).toBe("Replay of 80 deliveries");
    await page.click("text=Sign out");
    expect(await page.locator("h1").textContent()).toBe("Sign in to support");
    await context.close();
  });

  test("ask nobody but this server, and no page of another origin shows theirs", async () => {
    const { page, context } = await open();
    const asked: string[] = [];
    page.on("request", (request) => asked.push(new URL(request.url()).origin));
    for (const path of [FRONT, `${FRONT}/audit`, `${accountPath("Initech")}/deliveries`]) {
      await page.goto(address(path), { waitUntil: "networkidle" });
    }
    expect(new Set(asked)).toEqual(new Set([api.url]));
    const host = createServer((_, response) => {
      response.setHeader("content-type", "text/html").end(`<iframe src="${address(FRONT)}"></iframe>`);
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => host.once("listening", resolve));
    await page.goto(`http://127.0.0.1:${(host.address() as AddressInfo).port}/`, {
      waitUntil: "networkidle",
    });
    const framed = page.frames().find((frame) => frame !== page.mainFrame());
    expect(await framed?.locator("h1").textContent()).toMatch(/is blocked/);
    host.closeAllConnections();
    host.close();
    await context.close();
  });

  const FULL = [
    FRONT,
    `${FRONT}/search?q=inv-1`,
    `${FRONT}/search?q=nobody`,
    `${FRONT}/audit`,
    `${FRONT}/audit?actor=command_line&from=2020-01-01T00%3A00`,
    `${FRONT}/audit?actor=x`,
    `${FRONT}/a/01900000-0000-7000-8000-000000000000/deliveries`,
  ];

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360, 320])(
      "at %i px are without a fault that axe finds, and never scroll sideways",
      async (width) => {
        const { page, context } = await open(FRONT, { viewport: { width, height: 800 }, colorScheme });
        const account = accountPath("Globex Corporation");
        const paths = [...FULL, `${account}/deliveries`, `${account}/endpoint`, `${account}/replays/new`];
        for (const path of paths) {
          await page.goto(address(path));
          expect([path, await faultsOf(page)]).toEqual([path, []]);
        }
        await context.clearCookies();
        await page.goto(address(FRONT));
        expect(await faultsOf(page)).toEqual([]);
        await page.fill("input[name=key]", "wrong");
        await page.click("text=Sign in >> nth=-1");
        await page.waitForSelector("[role=alert]");
        expect(await faultsOf(page)).toEqual([]);
        await context.close();
      },
    );
  });

  test("without failing accounts see that, and nothing else amiss", async () => {
    const empty = await createTestDatabase();
    const quiet = await startTestApi(empty);
    const staff = await quiet.newKey(null);
    const { cookie } = await signIn(quiet, { key: staff });
    const { page, context } = await browser.newViewer({ extraHTTPHeaders: { cookie } });
    await page.goto(`${quiet.url}${FRONT}`);
    expect(await emptyTexts(page)).toContain("No failing accounts");
    expect(await faultsOf(page)).toEqual([]);
    await context.close();
    await quiet.close();
    await empty.drop();
  });

  const emptyTexts = async (page: Page) => (await page.locator(".empty h3").allTextContents()).join();
});
