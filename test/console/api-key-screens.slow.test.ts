import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { faultsOf } from "../support/page-faults.ts";
import type { TestAccount } from "../support/sealpost-api.ts";

const PERMISSIONS = ["webhooks:read", "webhooks:write", "audit:read", "keys:write", "users:write"];

describe("API keys in a browser", () => {
  let stage: BrowsedConsole;
  let account: TestAccount;
  beforeAll(async () => {
    stage = await browseConsole();
    account = await stage.api.newAccount();
  });
  afterAll(() => stage.close());

  const wish = (more = {}) => ({ key: account.ownKey, permissions: PERMISSIONS, path: "/keys", ...more });

  async function fillIn(page: Page, name: string): Promise<void> {
    await page.click("text=New key");
    await page.fill("#name", name);
    await page.check("text=See deliveries and the endpoint");
    await page.selectOption("#lifetime", { label: "in 30 days" });
  }

  test("one is made, copied, used and revoked", async () => {
    const { page, context, complaints } = await stage.open(wish());
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await fillIn(page, "CI");
    await page.dblclick("text=Make key");
    await page.waitForSelector("h1:has-text('API key made')");
    const key = (await page.locator("#api-key").textContent())!;
    await page.click("text=Copy key");
    await expect.poll(() => page.evaluate("navigator.clipboard.readText()")).toBe(key);
    const ask = async () => (await stage.api.ask("GET", "/v1/webhooks/deliveries", { key })).status;
    expect(await ask()).toBe(200);
    const told =
      "[location.href, document.title, document.cookie, JSON.stringify(localStorage), " +
      "JSON.stringify(sessionStorage), JSON.stringify(history.state)].join()";
    expect(await page.evaluate(told)).not.toContain(key);
    // Back and forth does not show it again by itself.
    await page.click("text=Done");
    await page.waitForURL(/\/keys$/);
    expect(await page.content()).not.toContain(key);
    const row = page.locator("table.keys tr[id]", { hasText: "CI" });
    expect(await row.count()).toBe(1);
    expect(await row.innerText()).toMatch(/active/);
    expect(await page.locator("table.keys tr[id] + .why").first().innerText()).toContain("webhooks:read");
    await page.click("nav >> text=Changes");
    await page.click("text=“CI”");
    await page.waitForURL(/\/keys#k-/);
    await row.getByRole("link", { name: "Revoke CI" }).click();
    await page.waitForSelector("h1:has-text('Revoke this key?')");
    expect(await ask()).toBe(200);
    await page.click("text=Keep it");
    await row.getByRole("link", { name: "Revoke CI" }).click();
    await page.click("button:text-is('Revoke')");
    await page.waitForSelector("text=Revoked: whatever uses that key");
    expect(await ask()).toBe(401);
    expect(await row.innerText()).toContain("revoked");
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("what is wrong is marked where it is, and what was typed is kept, without scripts, too", async () => {
    const { page, context } = await stage.openWithoutScript(wish());
    await fillIn(page, "CD");
    await page.uncheck("text=See deliveries and the endpoint");
    await page.click("text=Make key");
    expect(await page.locator("#scopes-refusal").textContent()).toContain("Choose at least one.");
    expect(await page.locator("fieldset").getAttribute("aria-describedby")).toBe("scopes-refusal");
    expect(await page.inputValue("#name")).toBe("CD");
    expect(await page.inputValue("#lifetime")).toBe("2592000");
    expect(await page.locator("button.copy:visible").count()).toBe(0);
    await page.check("text=See changes");
    await page.click("text=Make key");
    expect(await page.locator("#api-key").textContent()).toMatch(/^\S{40,}$/);
    await context.close();
  });

  test("a form that somebody fills in is left alone by refreshing", async () => {
    const { page, context } = await stage.open(wish());
    await page.clock.install();
    await page.goto(stage.address("/keys/new", account));
    await page.check("text=See changes");
    const refreshed = page.waitForResponse((answer) => answer.request().headers()["x-refresh"] !== undefined);
    await page.clock.runFor(6_000);
    await refreshed;
    expect(await page.isChecked("text=See changes")).toBe(true);
    await context.close();
  });

  test("who may not make keys has no tab and no page", async () => {
    const { page, context } = await stage.open({ key: account.ownKey, permissions: ["webhooks:read"] });
    expect(await page.locator("nav >> text=Keys").count()).toBe(0);
    const answer = await page.goto(stage.address("/keys", account));
    expect(answer?.status()).toBe(403);
    await context.close();
  });

  describe.each(["light", "dark"] as const)("in %s", (colorScheme) => {
    test.each([1280, 360, 320])(
      "at %i px no screen has a fault that axe finds, or scrolls sideways",
      async (width) => {
        const { page, context } = await stage.open(wish(), { viewport: { width, height: 800 }, colorScheme });
        const look = async (what: string) => expect([what, await faultsOf(page)]).toEqual([what, []]);
        await fillIn(page, `Key of ${"x".repeat(180)}`);
        await look("form");
        await page.uncheck("text=See deliveries and the endpoint");
        await page.click("text=Make key");
        await page.waitForSelector("#scopes-refusal");
        await look("refused");
        await page.check("text=See deliveries and the endpoint");
        await page.click("text=Make key");
        await page.waitForSelector("#api-key");
        await look("made");
        await page.click("text=Done");
        await page.waitForSelector("table.keys");
        await look("keys");
        await page.click("table.keys td a >> nth=0");
        await page.waitForSelector("h1:has-text('Revoke this key?')");
        await look("revoke");
        await page.goto(stage.address("/keys/users", account));
        await page.click("text=New user");
        await page.fill("#name", `Ada ${"x".repeat(180)}`);
        await page.fill("#email", "ada@example.com");
        await page.fill("#idp_user_id", `auth|${width}|${colorScheme}`);
        await look("user's form");
        await page.click("text=Add user");
        await page.waitForSelector("text=Nobody acts for them yet");
        await look("users");
        await page
          .getByRole("link", { name: /New key for/ })
          .first()
          .click();
        await page.waitForSelector("h1:has-text('New API key for Ada')");
        await look("user's key");
        await page.goBack();
        await page
          .getByRole("link", { name: /^Disable/ })
          .first()
          .click();
        await page.waitForSelector("h1:has-text('Disable this user?')");
        await look("disable");
        for (const url of ["https://a.example.com/", `https://b.example.com/${"long".repeat(60)}`]) {
          await stage.api.ask("PUT", "/v1/webhooks/endpoint", { key: account.ownKey, body: { url } });
        }
        for (const path of ["/audit", "/audit?openings=shown", "/audit?operation=webhooks.endpoint.set"]) {
          await page.goto(stage.address(path, account));
          await look(path);
        }
        await context.close();
      },
    );
  });
});
