import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countActivity } from "../../src/log/activity-sql.ts";
import { endedAttempt, insertAttempts } from "../support/attempt-rows.ts";
import { layActivity } from "../support/console-activity.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries, layReplay } from "../support/console-deliveries.ts";
import { changeRows, insertRow, rowOf } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";

const DAY_MS = 86_400_000;
const PERMISSIONS = ["webhooks:read", "webhooks:write", "webhooks:replay"];

describe("what an account is told of its endpoint, in a browser", () => {
  let stage: BrowsedConsole;
  let accountId: string;

  beforeAll(async () => {
    // Nobody listens there: mails wait.
    stage = await browseConsole({
      SMTP_URL: "smtp://127.0.0.1:1",
      NOTICES_FROM: "notices@example.org",
      PUBLIC_URL: "https://console.example.com",
    });
    ({ accountId } = stage.api.account);
    await layDeliveries(stage.database, accountId, { abandoned: 2, failed: 2, succeeded: 3, pending: 1 });
  });
  afterAll(async () => {
    await stage.close();
  });

  const open = (options = {}) => stage.open({ permissions: PERMISSIONS, path: "/endpoint" }, options);

  test("since when it fails, what arrived, how fast it responds, and that its certificate ends soon", async () => {
    const { page, context, complaints } = await open();
    const fact = (name: string) => page.locator(`.facts div:has(dt:text-is('${name}')) dd`).innerText();
    expect(await fact("Last success")).toBe("none in 24 hours");
    await layActivity(stage.database, accountId, 2 * 3_600_000);
    await insertRow(stage.database.pool, "endpoint_certificates", {
      account_id: accountId,
      host: "hooks.example.com",
      ends_at: new Date(Date.now() + 8.5 * DAY_MS),
      seen_at: new Date(Date.now() - 82 * DAY_MS),
    });
    await page.reload();
    expect(await page.locator(".head").innerText()).toMatch(/✕ failing\s+since .+ \(2\sh\sago\)$/);
    expect(await page.locator(".cause").innerText()).toMatch(
      /^The receiver's server refused the connection.*Remedy: /s,
    );
    expect(await fact("Last 24 hours")).toMatch(/^✓ [\d,]+ arrived ✕ [\d,]+ failed$/);
    expect(await fact("Last success")).toMatch(/ \(\d h ago\)$/);
    expect(await fact("Response time")).toMatch(/^[\d.]+ m?s, in the median$/);
    expect(await fact("Certificate, as last seen")).toMatch(
      /^▲ expires .+ \(in 8 d\)\s+first seen .+ \(82 d ago\)$/,
    );
    expect(await page.locator(".facts .warn").count()).toBe(1);
    await changeRows(
      stage.database.pool,
      "endpoint_certificates",
      { account_id: accountId },
      { ends_at: new Date(Date.now() + 40 * DAY_MS) },
    );
    await page.reload();
    expect(await fact("Certificate, as last seen")).toMatch(/^valid until .+ \(in 40 d\)\s+first seen /);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("whom it tells is listed, added and removed; what is refused stays typed, and marked", async () => {
    const { page, context } = await open();
    await page.fill("#recipient", "ops@localhost");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#recipient-refusal");
    expect(await page.inputValue("#recipient")).toBe("ops@localhost");
    expect(await page.getAttribute("#recipient", "aria-invalid")).toBe("true");
    expect(await faultsOf(page)).toEqual([]);
    await page.fill("#recipient", "ops@example.com");
    await page.keyboard.press("Enter");
    await page.waitForURL(/done=told/);
    expect(await page.locator("section[aria-labelledby=told] ul").innerText()).toMatch(
      /^ops@example\.com\s+○ not confirmed\s+Remove$/,
    );
    expect(await faultsOf(page)).toEqual([]);
    await page.click("section[aria-labelledby=told] button:text-is('Remove')");
    await page.waitForURL(/done=untold/);
    expect(await page.locator("section[aria-labelledby=told]").innerText()).toContain(
      "Nobody is told of this failure.",
    );
    await context.close();
  });

  test("while it is paused every page says so, and resumes it", async () => {
    const { page, context } = await open();
    await page.click("button:text-is('Pause')");
    await page.waitForURL(/done=paused/);
    for (const path of ["/deliveries", "/replays", "/replays/new", "/deliveries?status=pending"]) {
      await page.goto(stage.address(path));
      expect([path, await page.locator(".paused").innerText()]).toEqual([
        path,
        expect.stringMatching(/^❚❚ The endpoint is paused\s+since .+: its deliveries are held.*Resume$/s),
      ]);
      expect(await faultsOf(page)).toEqual([]);
    }
    await page.click(".paused button");
    await page.waitForURL(/\/endpoint\?done=resumed/);
    await page.goto(stage.address("/deliveries"));
    expect(await page.locator(".paused").count()).toBe(0);
    await context.close();
  });

  test("a delivery says who replayed it, and why", async () => {
    const { database, api } = stage;
    const account = await api.newAccount();
    await layDeliveries(database, account.accountId, { abandoned: 1, failed: 0, succeeded: 0, pending: 0 });
    const { id } = await rowOf(database.pool, "deliveries", { account_id: account.accountId });
    const { page, context } = await stage.open({
      key: account.ownKey,
      permissions: PERMISSIONS,
      viewer: { id: "dana", label: "Dana" },
    });
    await page.goto(stage.address(`/deliveries/${id}`, account));
    await page.click("button:text-is('Replay')");
    await page.waitForSelector("text=Queued");
    await changeRows(database.pool, "deliveries", { id }, { status: "failed" });
    const bulk = await layReplay(database, api, account);
    await changeRows(database.pool, "replays", { id: bulk.id }, { note: "after the fix" });
    await bulk.endStarted(["failed"]);
    const { body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`, { key: account.ownKey });
    expect(body.replays).toMatchObject([
      { run: 3, replay_id: bulk.id, note: "after the fix", created_by: { staff: false } },
      { run: 2, replay_id: null, note: null, created_by: { staff: false, viewer: "Dana" } },
    ]);
    await page.reload();
    expect(await page.locator(".run").allInnerTexts()).toEqual([
      expect.stringMatching(/^Run 3\s+replayed in bulk by .+: “after the fix”/),
      expect.stringMatching(/^Run 1/),
    ]);
    await context.close();
  });
});

test("how long responses take is read from the newest deliveries", async () => {
  const stage = await browseConsole();
  const { accountId, ownKey: key } = stage.api.account;
  await layDeliveries(stage.database, accountId, { abandoned: 0, failed: 0, succeeded: 2, pending: 0 });
  await insertAttempts(stage.database.pool, [endedAttempt(new Date(), { accountId })]);
  while ((await countActivity(stage.database.pool, 0)).isBehind);
  const { body } = await stage.api.ask("GET", "/v1/webhooks/endpoint/health", { key });
  expect(body.response_time_ms).toEqual({ p50: 1_200, p95: 1_200 });
  await stage.close();
});
