// Erasing what a run has published, or waits for.
import { expect, test } from "vitest";
import { countRows } from "../support/installation.ts";
import { publishIt, read, waiting } from "./external-world.ts";
import { documents, newUser, publishOwn, runIn, setRole } from "./membership-world.ts";
import { api, database, runs, stepping, useRuns } from "./run-world.ts";
import { chain, stepAll } from "./support/runs.ts";

useRuns();

const erase = (id: string, key = api.account.ownKey) => api.ask("DELETE", `/v1/analyses/${id}`, { key });
const itemsOf = (runId: string) => countRows(database.pool, "workspace.node_items", { run_id: runId });

test("needs can_delete in its space of whoever acts for a user; for others it does not exist", async () => {
  const space = await documents.newSpace();
  const { analysisId } = await runIn(space.id, "erased.txt");
  const [stranger, editor] = [await newUser(), await newUser()];
  await setRole(space.id, editor, "EDITOR");
  expect([await erase(analysisId, stranger.key), await erase(analysisId, editor.key)]).toMatchObject([
    { status: 404 },
    { status: 403, body: { code: "access_denied" } },
  ]);
  expect(await itemsOf(analysisId)).toBeGreaterThan(0);
  await setRole(space.id, editor, "ADMIN");
  expect((await erase(analysisId, editor.key)).status).toBe(200);
  expect(await itemsOf(analysisId)).toBe(0);
  expect((await api.ask("GET", `/v1/analyses/${analysisId}`)).body.code).toBe("analysis_erased");
  expect((await runs.get(analysisId)).status).toBe("SUCCEEDED");
  await publishOwn("of-no-run");
  expect((await erase("of-no-run", stranger.key)).status).toBe(200);
});

test("ends a run that works with it, and what it has handed on is gone", async () => {
  const definition = chain(
    { kind: "external_analysis" },
    { kind: "wait", parameters: { for_seconds: 3_600 } },
  );
  const { run, analysisId } = await waiting(definition);
  await publishIt(analysisId, { text: "canary" });
  await read();
  await stepAll(stepping());
  expect(await itemsOf(run.id)).toBe(2);
  expect((await erase(analysisId)).status).toBe(200);
  expect([(await runs.get(run.id)).status, await itemsOf(run.id)]).toEqual(["CANCELLED", 0]);
});

test("goes with what a run has published of it", async () => {
  const { run, analysisId } = await waiting();
  await publishIt(analysisId, { text: "canary" });
  await read();
  await stepAll(stepping());
  expect((await api.ask("GET", `/v1/analyses/${run.id}`)).bytes.toString()).toContain("canary");
  expect((await erase(analysisId)).status).toBe(200);
  for (const id of [analysisId, run.id])
    expect((await api.ask("GET", `/v1/analyses/${id}`)).body.code).toBe("analysis_erased");
  expect(await countRows(database.pool, "erasures", { account_id: api.account.accountId })).toBeGreaterThan(
    1,
  );
});
