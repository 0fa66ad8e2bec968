// A run of a workflow, as a viewer with a browser meets it.
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import { type BrowsedConsole, browseConsole } from "../support/console-browser.ts";
import { publish } from "../support/installation.ts";
import { faultsOf } from "../support/page-faults.ts";
import { patience } from "../support/time-limits.ts";
import { documentsOf } from "./support/documents.ts";
import { openFileStore } from "./support/object-listing.ts";
import { chain, readFeeds, runsOf, stepAll } from "./support/runs.ts";

const PERMISSIONS = ["webhooks:read", "analyses:read", "workflows:read"];

describe("a run's page", () => {
  let stage: BrowsedConsole;
  let objects: ObjectStore;
  let runs: ReturnType<typeof runsOf>;
  /** Of documents that are analysed, and then wait for somebody else's analysis. */
  let workflowId: string;

  beforeAll(async () => {
    stage = await browseConsole();
    const { ask, stateDir } = stage.api;
    objects = await openFileStore(join(stateDir, "objects"));
    runs = runsOf(ask);
    const documents = documentsOf(ask);
    const { id: space_id } = await documents.newSpace();
    await documents.uploaded({ space_id, file_name: "offer.md" }, Buffer.from("Read me."));
    const definition = chain({ kind: "documents" }, { kind: "analyze" }, { kind: "external_analysis" });
    workflowId = await runs.newWorkflow(space_id, definition);
    await ask("PATCH", `/v1/workflows/${workflowId}`, { body: { name: "Read invoices" } });
  });
  afterAll(() => stage.close());

  const steps = () => stepAll({ pool: stage.database.pool, objects });

  /** A run whose last node waits, and what ends it. */
  async function waiting() {
    const { id } = await runs.started(workflowId);
    await steps();
    const last = (await runs.get(id)).node_runs.at(-1)!;
    const end = async (analysis: object) => {
      const text = JSON.stringify({ id: `${id}:${last.id}`, ...analysis });
      await publish(stage.database.pool, stage.api.account.accountId, text);
      await readFeeds(stage.database.pool);
      await steps();
    };
    return { id, end };
  }

  const open = () =>
    stage.open({ key: stage.api.account.key, permissions: PERMISSIONS, time_zone: "Europe/Berlin" });

  test("is refreshed while it goes on, until it has ended and its delivery is there", async () => {
    const { id, end } = await waiting();
    const { page, context, complaints } = await open();
    await page.goto(stage.address(`/runs/${id}`));
    expect(await page.locator("h1").innerText()).toBe("Read invoices");
    expect(await page.locator(".head .status").innerText()).toBe("◐ waiting");
    expect(await page.locator(".facts").innerText()).toMatch(/Took\s+[\d.]+ m?s so far/);
    const signs = page.locator(".nodes td:first-child .status");
    expect(await signs.allInnerTexts()).toEqual(["✓ completed", "✓ completed", "✓ completed", "◐ waiting"]);
    expect(await page.locator(".nodes .why").innerText()).toMatch(
      /^\s*Waits for the analysis .* until .* \(in 7 d\)\.$/,
    );
    expect(await faultsOf(page)).toEqual([]);
    await end({ status: "succeeded" });
    await expect
      .poll(() => page.locator(".head .status").innerText(), { timeout: patience(20_000) })
      .toBe("✓ completed");
    expect(await signs.allInnerTexts()).toEqual(Array(4).fill("✓ completed"));
    await page.click(".facts a[href*='/deliveries/']");
    await page.waitForURL(/\/deliveries\/[0-9a-f-]{36}$/);
    await page.click(".origin a:has-text('Read invoices')");
    await page.waitForURL(new RegExp(`/runs/${id}$`));
    await page.click("text=all deliveries");
    await page.waitForURL(new RegExp(`/deliveries\\?workflow_id=${workflowId}$`));
    expect(await page.locator(`table.log a:text-is("${id}")`).count()).toBe(1);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("of one that failed says why, at the node and first of all, on a telephone, too", async () => {
    const { id, end } = await waiting();
    await end({ status: "failed", error_code: "unreadable", error_message: "Page 3 is blank." });
    const { page, context, complaints } = await open();
    await page.goto(stage.address(`/runs/${id}`));
    expect(await page.locator(".head .status").innerText()).toBe("✕ failed");
    const why = page.locator(".cause");
    expect(await why.locator("h2").innerText()).toBe("“external_analysis” failed");
    expect(await why.locator("p").innerText()).toMatch(/unreadable: Page 3 is blank\.$/);
    const rows = page.locator(".nodes tbody tr");
    expect(await rows.nth(3).innerText()).toMatch(/^✕ failed\s+external_analysis external analysis/);
    expect(await rows.nth(4).innerText()).toMatch(/unreadable: Page 3 is blank\.$/);
    expect(await faultsOf(page)).toEqual([]);
    await page.setViewportSize({ width: 360, height: 780 });
    await page.emulateMedia({ colorScheme: "dark" });
    expect(await faultsOf(page)).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("is a click from the log, which names the workflow and lists what it has published", async () => {
    await (await waiting()).end({ status: "succeeded" });
    await publish(stage.database.pool, stage.api.account.accountId, '{"id":"other","status":"failed"}');
    const { page, context, complaints } = await open();
    await page.goto(stage.address("/deliveries"));
    expect(await page.locator("tr[id]:has(a:text-is('other')) .over").count()).toBe(0);
    await page.locator("td .over").first().click();
    await page.waitForURL(/workflow_id=/);
    expect(await page.locator(".chips li").first().innerText()).toBe("workflow Read invoices ✕");
    const names = await page.locator("td .over").allInnerTexts();
    expect(new Set(names)).toEqual(new Set(["Read invoices"]));
    expect(await page.locator("tr[id]").count()).toBe(names.length);
    expect(await faultsOf(page)).toEqual([]);
    expect(complaints).toEqual([]);
    await context.close();
  });

  test("of an unknown one says so, with a way back", async () => {
    const { page, context } = await open();
    const answer = await page.goto(stage.address("/runs/0199a1f0-7d2c-7c3a-9b1e-000000000000"));
    expect(answer?.status()).toBe(404);
    expect(await page.locator("[data-problem='not_found']").count()).toBe(1);
    expect(await page.locator("header nav a").first().innerText()).toBe("Deliveries");
    await context.close();
  });
});
