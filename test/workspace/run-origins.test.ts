// One line from documents to the receiver, on the page of the webhook that a run ends in.
import { afterAll, beforeAll, expect, test } from "vitest";
import { enter, type Hand } from "../support/console.ts";
import type { Json } from "../support/sealpost-api.ts";
import { api, database, documents, objects, runs, useRuns } from "./run-world.ts";
import { chain, startTestRunner } from "./support/runs.ts";

const NAME = "Read <tenders>";

let runner: ReturnType<typeof startTestRunner>;
let runId: string;
useRuns();
beforeAll(async () => {
  runner = startTestRunner(database.pool, objects);
  const { id: space_id } = await documents.newSpace();
  for (const file_name of ["offer.md", "terms.md"])
    await documents.uploaded({ space_id, file_name }, Buffer.from("Read me."));
  const workflowId = await runs.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
  await api.ask("PATCH", `/v1/workflows/${workflowId}`, { body: { name: NAME } });
  const run = await runs.started(workflowId, { webhook_url: "https://hooks.example.com/runs" });
  runId = run.id;
});
afterAll(async () => {
  await runner.stop();
  expect(runner.errors).toEqual([]);
});

/** The page of the delivery of that analysis. */
async function pageOf(hand: Hand, analysisId: string): Promise<string> {
  const { body } = await api.ask("GET", `/v1/webhooks/deliveries?analysis_id=${analysisId}`);
  const { id } = (body.items as Json[])[0]!;
  const page = await hand.get(`${hand.base}/deliveries/${id}`);
  expect(page.status).toBe(200);
  return page.text;
}

/** Its words, without markup. */
const lineIn = (page: string) =>
  /<nav class="origin"[^>]*>(.*?)<\/nav>/s
    .exec(page)?.[1]
    ?.replaceAll(/<[^>]*>/g, " ")
    .replaceAll(/\s+/g, " ")
    .trim();

test("the webhook of a run tells which workflow made it, of what", async () => {
  expect(await runs.ended(runId)).toMatchObject({ status: "SUCCEEDED" });
  const hand = await enter(api, { permissions: ["webhooks:read", "analyses:read"] });
  expect(lineIn(await pageOf(hand, runId))).toBe(
    `Workflow Read &#60;tenders&#62; ${runId.slice(-8)} documents 2 items analyze 2 items This webhook`,
  );
});

test("it does not for who may not read analyses", async () => {
  await runs.ended(runId);
  const hand = await enter(api, { permissions: ["webhooks:read"] });
  expect(lineIn(await pageOf(hand, runId))).toBeUndefined();
});

test("an analysis that a pipeline has published has none, whatever its id is", async () => {
  await runs.ended(runId);
  const hand = await enter(api, { permissions: ["webhooks:read", "analyses:read"] });
  const other = await api.newAccount();
  // Another account's analysis may have the run's id.
  for (const [id, key] of [
    ["contract-1", api.account.key],
    [runId, other.key],
  ] as const) {
    const body = { analysis: { id, status: "succeeded" }, webhook_url: "https://hooks.example.com/" };
    expect((await api.ask("POST", "/v1/analyses", { key, body })).status).toBe(202);
  }
  expect(lineIn(await pageOf(hand, "contract-1"))).toBeUndefined();
  const { body } = await api.ask("GET", `/v1/webhooks/deliveries?analysis_id=${runId}`, { key: other.key });
  const hers = await enter(api, { key: other.key, permissions: ["webhooks:read", "analyses:read"] });
  const page = await hers.get(`${hers.base}/deliveries/${(body.items as Json[])[0]!.id}`);
  expect(page.status).toBe(200);
  expect(lineIn(page.text)).toBeUndefined();
});
