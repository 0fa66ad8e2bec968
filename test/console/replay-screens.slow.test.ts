import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { layActivity } from "../support/console-activity.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { endAttempts, layDeliveries, layReplay } from "../support/console-deliveries.ts";
import type { TestDatabase } from "../support/database.ts";
import { publishAt } from "../support/delivery-rows.ts";
import { changeRows, countRows, rowOf } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";
import type { TestAccount, TestApi } from "../support/sealpost-api.ts";

const WISH = { permissions: ["webhooks:read", "webhooks:replay"], time_zone: "Europe/Berlin" };
const BULK = ".bar a.button";
const REFRESH_MS = 5_000;
const EXPIRED = { url: "https://hooks.example.com/in", errorCode: "tls_expired", statusCode: null } as const;
const GONE = { url: "https://hooks.example.com/in", errorCode: "status_404", statusCode: 404 } as const;
/** As the browser shows it. */
const styleOf = (shown: Locator, name: string) =>
  shown.evaluate(
    (element, property) => (globalThis as unknown as Styles).getComputedStyle(element)[property],
    name,
  );
type Styles = { getComputedStyle(element: unknown): Readonly<Record<string, string>> };

describe("filters and bulk replays in a browser", () => {
  let database: TestDatabase;
  let api: TestApi;
  let stage: BrowsedConsole;
  let account: TestAccount;

  beforeAll(async () => {
    stage = await browseConsole();
    ({ database, api } = stage);
  });
  afterAll(async () => {
    await stage.close();
  });
  beforeEach(async () => {
    account = await api.newAccount();
    await layDeliveries(database, account.accountId, { abandoned: 3, failed: 2, succeeded: 2, pending: 1 });
  });

  const open = (options = {}) => stage.open({ key: account.ownKey, ...WISH }, options);
  const openWithoutScript = () => stage.openWithoutScript({ key: account.ownKey, ...WISH });

  const search = (page: Page) => new URL(page.url()).searchParams;
  const rows = (page: Page) => page.locator("table.log tr[id]").count();
  const replays = () => countRows(database.pool, "replays", { account_id: account.accountId });

  test("keeps every filter in the address, the tabs and the form; times as moments", async () => {
    const { page, context, complaints } = await open();
    await page.click("text=More filters");
    await page.selectOption("select[name=error_code]", "status_503");
    await page.fill("input[name=code]", "5xx");
    await page.fill("input[name=from]", "2026-01-15T02:14");
    await page.click("button:text-is('Filter')");
    await page.waitForURL(/created_after/);
    expect(Object.fromEntries(search(page))).toEqual({
      error_code: "status_503",
      status_code_min: "500",
      status_code_max: "599",
      created_after: "2026-01-15T01:14:00.000Z",
    });
    expect(await rows(page)).toBe(5);
    await page.click("a:text-is('Needs attention')");
    await page.waitForURL(/status=failed/);
    expect(search(page).get("created_after")).toBe("2026-01-15T01:14:00.000Z");
    expect(await page.inputValue("input[name=from]")).toBe("2026-01-15T02:14");
    expect(await page.inputValue("input[name=code]")).toBe("5xx");
    expect(await page.inputValue("select[name=error_code]")).toBe("status_503");
    await page.click("text=More filters");
    await page.selectOption("select[name=reason]", "attempts_exhausted");
    await page.click("button:text-is('Filter')");
    await page.waitForURL(/reason=/);
    expect(await rows(page)).toBe(3);
    await page.click("text=Clear filters");
    await page.waitForURL((url) => !url.search.includes("reason"));
    expect(search(page).getAll("status")).toEqual(["failed", "abandoned"]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("says in a few words what is next, and until when it can be replayed", async () => {
    const { page, context } = await open();
    await page.click("a:text-is('Needs attention')");
    await page.waitForURL(/status=failed/);
    const words = await page.locator("tr[id] td:last-child").allInnerTexts();
    expect(words).toHaveLength(5);
    expect(words[0]).toMatch(/^replay until \d+ \w{3,4}, \d\d:\d\d$/);
    expect(words[4]).toMatch(/\d\d:\d\d.* \(in .+\)$/);
    await context.close();
  });

  test("offers to replay what can be replayed", async () => {
    const { page, context } = await open();
    for (const [tab, isThere] of [
      ["Needs attention", 1],
      ["Pending", 0],
      ["Arrived", 0],
      ["All", 1],
    ] as const) {
      await page.click(`nav.tabs a:has-text('${tab}')`);
      await page.waitForSelector(`nav.tabs a[aria-current]:has-text('${tab}')`);
      expect([tab, await page.locator(BULK).count()]).toEqual([tab, isThere]);
    }
    await context.close();
  });

  test("counts, tries one, replays the others and stops them", async () => {
    const { page, context, complaints } = await open();
    await page.click("nav.tabs a:text-is('Needs attention')");
    await page.click(BULK);
    await page.waitForSelector("text=5 deliveries match");
    await page.uncheck("input[value=failed]");
    await page.click("text=Count");
    await page.waitForSelector("text=3 deliveries match");
    await page.click("text=Try 1 first: inv-1");
    await page.waitForSelector("text=Queued: run 2 of");
    await page.waitForSelector("text=2 deliveries match");
    await page.fill("input[name=note]", "INC-42");
    await page.dblclick("text=Replay 2");
    await page.waitForURL((url) => !url.pathname.endsWith("/new"));
    await page.click("nav >> text=Replays");
    await page.click("a:text-is('2 deliveries')");
    await page.waitForSelector("h1:has-text('Replay of 2 deliveries')");
    expect(await replays()).toBe(1);
    expect(await page.locator(".counts").textContent()).toContain("0 of 2 started");
    await page.click("button:has-text('Stop')");
    await page.waitForSelector("text=Stopped: no more are started");
    expect(await page.locator("button:has-text('Stop')").count()).toBe(0);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("that fails says so, why, and that it can be stopped", async () => {
    const { page, context, complaints } = await open();
    const replay = await layReplay(database, api, account);
    await replay.endStarted(["failed", EXPIRED], ["failed", GONE]);
    await page.goto(stage.address(`/replays/${replay.id}`, account));
    const counts = () => page.locator(".counts li").allInnerTexts();
    expect(await counts()).toEqual([
      "2 of 5 started",
      "✓ 0 arrived",
      "↻ 2 failing: status_404 1, tls_expired 1",
      "○ 0 waiting",
      "✕ 0 abandoned again",
    ]);
    const amber = await styleOf(page.locator(".counts .failing"), "color");
    expect(amber).toBe(await styleOf(page.locator(".behind"), "color"));
    expect(amber).not.toBe(await styleOf(page.locator(".counts .waiting"), "color"));
    expect(await page.locator(".behind").innerText()).toBe("None has arrived yet. Stop?");
    expect(await faultsOf(page)).toEqual([]);
    await page.goto(stage.address("/replays", account));
    expect(await page.locator(".replays").innerText()).toContain("None has arrived yet. Stop?");
    expect(await page.locator("button:has-text('Stop')").count()).toBe(1);
    // The first to arrive calms it.
    await replay.endStarted(["succeeded"]);
    await page.goto(stage.address(`/replays/${replay.id}`, account));
    expect(await page.locator("main").innerText()).not.toContain("None has arrived");
    expect(await counts()).toContain("↻ 1 failing: status_404 1");
    await page.click("button:has-text('Stop')");
    await page.waitForSelector("text=Stopped: no more are started");
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("whose deliveries are all started has none to stop", async () => {
    const { page, context } = await open();
    const replay = await layReplay(database, api, account, 1_000);
    await replay.endStarted(...replay.started.map(() => ["failed"] as const));
    await page.goto(stage.address(`/replays/${replay.id}`, account));
    expect(await page.locator(".behind").innerText()).toBe("None has arrived yet.");
    expect(await page.locator(".counts").innerText()).toContain("5 failing: status_503 5");
    expect(await page.locator("button:has-text('Stop')").count()).toBe(0);
    await context.close();
  });

  test("first tries one, whose line alone tells how it goes", async () => {
    account = await api.newAccount();
    await layDeliveries(database, account.accountId, { abandoned: 3, failed: 0, succeeded: 0, pending: 0 });
    await layActivity(database, account.accountId, 2 * 3_600_000, GONE.url, {
      outcome: "rejected",
      errorCode: "status_503",
    });
    const { page, context, complaints } = await open();
    await page.clock.install();
    await page.goto(stage.address("/replays/new?status=abandoned", account));
    const paint = (name: string) => styleOf(page.locator(`button:has-text('${name}')`), "backgroundColor");
    const accent = await paint("Try 1 first");
    expect(await paint("Replay 3")).not.toBe(accent);
    expect(await page.locator("p:has-text('Now:')").innerText()).toMatch(
      /^Now: hooks\.example\.com returns 503, since \d\d:\d\d \(2 h ago\)\. Check again$/,
    );
    await page.click("text=Check again");
    await page.waitForSelector("text=3 deliveries match");

    await page.click("text=Try 1 first: inv-1");
    const line = page.locator(".tried");
    await line.waitFor();
    expect(await line.innerText()).toMatch(/^Queued: run 2 of inv-1: ○ pending\. See whether it arrives/);
    expect(await page.locator("p:has-text('Now:')").count()).toBe(0);
    await page.fill("input[name=note]", "INC-42");
    const key = page.locator(".bulk input[name=_key]");
    const before = await key.inputValue();
    const { id } = await rowOf(database.pool, "deliveries", {
      account_id: account.accountId,
      analysis_id: "inv-1",
    });
    const refresh = async () => {
      const asked = page.waitForResponse(
        (response) => response.request().headers()["x-refresh"] !== undefined,
      );
      await page.clock.fastForward(REFRESH_MS);
      await (await asked).finished();
    };
    await endAttempts(database, new Map([[String(id), "failed"]]), Date.now(), EXPIRED);
    await refresh();
    await expect
      .poll(() => line.innerText())
      .toMatch(/^Run 2 of inv-1: ↻ failing\. .*certificate has expired.* Next attempt/);
    const red = await styleOf(line, "borderLeftColor");
    expect(await paint("Replay 2")).not.toBe(accent);
    expect(await faultsOf(page)).toEqual([]);
    await changeRows(
      database.pool,
      "open_deliveries",
      { delivery_id: id },
      { due_at: new Date(Date.now() - 1_000) },
    );
    await endAttempts(database, new Map([[String(id), "succeeded"]]));
    await refresh();
    await expect.poll(() => line.innerText()).toBe("Run 2 of inv-1: ✓ arrived. Replay the others.");
    expect(await styleOf(line, "borderLeftColor")).not.toBe(red);
    await expect.poll(() => paint("Replay 2")).toBe(accent);
    expect([await page.inputValue("input[name=note]"), await key.inputValue()]).toEqual(["INC-42", before]);
    expect(await page.locator(".live").innerText()).toBe("● live 5 s");
    expect(await faultsOf(page)).toEqual([]);
    await page.click("text=Replay 2");
    await page.waitForSelector("text=Queued: they start at 10 a second.");
    expect(await rowOf(database.pool, "replays", { account_id: account.accountId })).toMatchObject({
      matched: 2,
      note: "INC-42",
    });
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("says of each place how many go there", async () => {
    await publishAt(
      database.pool,
      account.accountId,
      new Date(),
      ["own-1", "own-2"],
      "https://own.example.net/",
    );
    await changeRows(
      database.pool,
      "deliveries",
      { account_id: account.accountId, analysis_id: ["own-1", "own-2"] },
      { status: "abandoned", reason: "attempts_exhausted" },
    );
    const { page, context } = await open();
    const where = async (search: string) => {
      await page.goto(stage.address(`/replays/new${search}`, account));
      return await page.locator("#matched + p").innerText();
    };
    expect(await where("")).toBe(
      "5 go to https://hooks.example.com/in. 2 go to the URLs that they were published with.",
    );
    expect(await where("?status=failed")).toBe("They go to https://hooks.example.com/in.");
    expect(await where("?target_host=own.example.net")).toBe(
      "They go to the URLs that they were published with.",
    );
    await context.close();
  });

  test("does all of it without scripts; Enter in a field counts and replays nothing", async () => {
    const { page, context } = await openWithoutScript();
    await page.click(BULK);
    await page.fill("input[name=target_host]", "nowhere.example.com");
    await page.press("input[name=target_host]", "Enter");
    await page.waitForSelector("text=Nothing to replay");
    await page.fill("input[name=target_host]", "");
    await page.click("text=Count");
    await page.waitForSelector("text=5 deliveries match");
    expect(await replays()).toBe(0);
    // What was not counted is counted first.
    await page.uncheck("input[value=abandoned]");
    await page.click("text=Replay 5");
    await page.waitForSelector("text=2 deliveries match");
    await page.click("text=Replay 2");
    await page.waitForSelector("text=Queued: they start at 10 a second.");
    await page.click("button:has-text('Stop')");
    await page.waitForSelector("text=Stopped");
    expect(await replays()).toBe(1);
    await context.close();
  });

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360, 320])(
      "at %i px is without a fault that axe finds, and never scrolls sideways",
      async (width) => {
        const { page, context } = await open({ viewport: { width, height: 800 }, colorScheme });
        const base = `${api.url}/console/a/${account.accountId}`;
        const faultsAt = async (path: string) => {
          await page.goto(base + path);
          return [path, await faultsOf(page)];
        };
        expect(await faultsAt("/replays")).toEqual(["/replays", []]);
        const filter = { target_host: "hooks.example.com", created_after: "2026-01-01T00:00:00Z" };
        const { body } = await api.ask("POST", "/v1/webhooks/replays", {
          key: account.ownKey,
          body: { filter, note: "INC-42: the receiver is back" },
        });
        for (const path of [
          "/replays",
          `/replays/${body.id}`,
          "/replays/new",
          "/replays/new?target_host=nowhere.example",
          "/replays/new?rate_per_second=5000",
          `/deliveries?replay_id=${body.id}`,
        ]) {
          expect(await faultsAt(path)).toEqual([path, []]);
        }
        await context.close();
      },
    );
  });
});
