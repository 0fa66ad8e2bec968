// What people come to the console for, with as few clicks as they need.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { layActivity } from "../support/console-activity.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { layDeliveries } from "../support/console-deliveries.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { changeRows, rowOf } from "../support/installation.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const FRONT = "/console/staff";
const NOTE = "Receivers were down from 14:00 to 15:00";
const ABANDONED = { "Acme, Inc.": 90, Globex: 120, Initech: 90 };

describe("in the console", () => {
  let stage: BrowsedConsole;
  let receiver: Receiver;
  let dispatcher: SealpostProcess;

  beforeAll(async () => {
    receiver = await startReceiver();
    const targets = targetsEnv([receiver]);
    stage = await browseConsole(targets);
    const { accountId } = stage.api.account;
    await changeRows(stage.database.pool, "accounts", { id: accountId }, { name: "Hooli" });
    await layDeliveries(stage.database, accountId, { abandoned: 0, failed: 2, succeeded: 1, pending: 0 });
    await layActivity(stage.database, accountId, 3_600_000);
    for (const [name, abandoned] of Object.entries(ABANDONED)) {
      const account = await stage.api.newAccount();
      await changeRows(stage.database.pool, "accounts", { id: account.accountId }, { name });
      const failure = { url: receiver.url("/in").href, errorCode: "status_503", statusCode: 503 } as const;
      const shown = { abandoned, failed: 0, succeeded: 0, pending: 0 };
      await layDeliveries(stage.database, account.accountId, shown, Date.now(), failure);
    }
    // Not before: it would deliver what is to have been abandoned.
    dispatcher = await startProcess("dispatch", { DATABASE_URL: stage.database.url, ...targets });
  });
  afterAll(async () => {
    await dispatcher.stop();
    await stage.close();
    await receiver.close();
  });

  test("a viewer who opens the link sees what has not arrived, since when and why, without a click", async () => {
    const { page, context } = await stage.open();
    expect((await page.locator(".trouble").innerText()).trim()).toMatch(
      /^2 events have not arrived at hooks\.example\.com, failing since .+ ago\)\. The receiver's server refused/,
    );
    await context.close();
  });

  test("a delivery's id, and Enter, lead to what its receiver responded last", async () => {
    const { page, context } = await stage.open();
    const row = { account_id: stage.api.account.accountId, analysis_id: "inv-1" };
    const { id } = await rowOf(stage.database.pool, "deliveries", row);
    await page.keyboard.press("/");
    await page.keyboard.type(id);
    await page.keyboard.press("Enter");
    await page.waitForSelector("#response");
    expect(await page.locator("section[aria-labelledby=response] code").first().innerText()).toBe(
      "HTTP 503 Service Unavailable",
    );
    await context.close();
  });

  test("support see why 300 deliveries were abandoned, try one, replay all, see them arrive: nine clicks", async () => {
    const { page, context, complaints } = await stage.newViewer();
    let clicks = 0;
    const click = async (what: string) => {
      clicks++;
      await page.click(what);
    };
    const timeout = patience(60_000);
    await page.goto(`${stage.api.url}${FRONT}`);
    // Chromium's own word for a page that is a 401.
    expect(complaints.splice(0)).toHaveLength(1);
    await page.fill("input[name=key]", await stage.api.newKey(null));
    await click("button:text-is('Sign in')");
    const causes = await page.locator(".failing-accounts .cause").allInnerTexts();
    expect(causes).toEqual(Array(3).fill(expect.stringMatching(/status_503 The receiver returned 503/)));
    await click(".failing-accounts li:has-text('Globex') >> text=Replay");
    await page.fill("input[name=note]", NOTE);
    await click("text=Try 1 first");
    await page.waitForSelector(".tried.succeeded", { timeout });
    await click("text=Replay 119");
    for (const [name, count] of Object.entries({ "Acme, Inc.": 90, Initech: 90 })) {
      await click(`a:text-is('Replay ${name}…')`);
      expect(await page.inputValue("input[name=note]")).toBe(NOTE);
      await click(`text=Replay ${count}`);
    }
    await expect.poll(() => page.locator(".counts .arrived").innerText(), { timeout }).toBe("✓ 90 arrived");
    await click("nav >> text=Support");
    await page.waitForSelector("text=No failing accounts", { timeout });
    expect(clicks).toBeLessThanOrEqual(9);
    expect(receiver.requests).toHaveLength(300);
    expect(complaints).toEqual([]);
    await context.close();
  });
});
