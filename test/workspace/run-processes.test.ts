// Dispatchers and the processes that they have for steps.
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifySignature } from "../../src/signing/verify.ts";
import { patience } from "../support/time-limits.ts";
import { openRunSite, type RunSite } from "./support/run-processes.ts";
import { chain } from "./support/runs.ts";

let site: RunSite;
beforeAll(async () => {
  site = await openRunSite();
});
afterAll(() => site.close());

test("a run's webhook arrives, signed, soon after it was asked for", async () => {
  const { api, documents, runs, receiver } = site;
  const dispatcher = await site.startDispatcher();
  const { id: space_id } = await documents.newSpace();
  await documents.uploaded({ space_id });
  const workflow = await runs.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
  const first = await runs.started(workflow, { webhook_url: receiver.url("/own").href });
  const [request] = await receiver.waitForRequests(1);
  expect([request!.path, JSON.parse(request!.body.toString()).data.id]).toEqual(["/own", first.id]);
  const header = request!.headers["extract-signature"];
  verifySignature({
    body: request!.body,
    header,
    secrets: [api.account.secret],
    nowSeconds: Date.now() / 1_000,
  });

  const second = await runs.started(workflow);
  const run = await runs.ended(second.id);
  const tookMs = Date.parse(String(run.completed_at)) - Date.parse(String(run.created_at));
  console.log(`a run of three nodes took ${tookMs} ms`);
  expect(tookMs).toBeLessThan(patience(1_000));
  const [, other] = await receiver.waitForRequests(2);
  expect([other!.path, JSON.parse(other!.body.toString()).data.id]).toEqual(["/endpoint", second.id]);
  expect(await dispatcher.end("SIGTERM")).toBe(0);
});
