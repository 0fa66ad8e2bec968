// Whatever definition is accepted runs to an end.
import { fc } from "@fast-check/vitest";
import { expect, test } from "vitest";
import { type Definition, sourcesOf } from "../../src/workspace/model/definition.ts";
import { publish } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import { api, database, documents, runs, stepping, useRuns } from "./run-world.ts";
import { definitions } from "./support/definitions.ts";
import { claimNext, publishedAnalyses, readFeeds, stepAll } from "./support/runs.ts";

const RUNS = 60;
const SEED = 20261122;

useRuns();

const waits = fc.oneof(
  fc.integer({ min: 1, max: 2_592_000 }).map((for_seconds) => ({ for_seconds })),
  fc
    .date({ min: new Date(0), max: new Date(), noInvalidDate: true })
    .map((date) => ({ until: date.toISOString() })),
);

/** Those that wait for no time. */
function externals({ nodes }: Definition): string[] {
  return nodes.filter(({ kind }) => kind === "external_analysis").map(({ id }) => id);
}

test(
  "whatever a definition has, each node runs once, after all before it, and the run is published once",
  async () => {
    const { id: space_id } = await documents.newSpace();
    const folder = await api.ask("POST", `/v1/spaces/${space_id}/folders`, { body: { name: "folder" } });
    const folder_id = String(folder.body.id);
    for (const place of [{ file_name: "one" }, { file_name: "two" }, { file_name: "three", folder_id }]) {
      await documents.uploaded({ space_id, ...place });
    }
    const property = fc.asyncProperty(
      definitions({ folderIds: [folder_id], waits }),
      fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 3 }),
      fc.infiniteStream(fc.integer({ min: 0, max: 4 })),
      async (definition, input, dice) => {
        const workflow = await runs.newWorkflow(space_id, definition);
        const { id } = await runs.started(workflow, { input });
        for (let rounds = 0; ; rounds++) {
          expect(rounds).toBeLessThan(1_000);
          // Now and then somebody dies with a step.
          if (dice.next().value === 0) await claimNext(database.pool);
          await stepAll(stepping());
          const { status } = await runs.get(id);
          if (status === "SUCCEEDED" || status === "FAILED") break;
          for (const { wait } of (await runs.get(id)).node_runs as { wait: Json | null }[]) {
            if (wait?.kind !== "analysis") continue;
            const analysis = JSON.stringify({ id: wait.analysis_id, status: "succeeded" });
            await publish(database.pool, api.account.accountId, analysis);
          }
          // Who waits for one is woken before its time, which comes then.
          await readFeeds(database.pool);
          await stepAll(stepping());
          await database.pool.query(
            `update workspace.node_runs
             set next_at = now(),
               started_at = started_at - case when node_id = any($1) then interval '0' else interval '31 days' end
             where next_at > now()`,
            [externals(definition)],
          );
        }
        const run = await runs.get(id);
        // Only what doubles in every layer is too much.
        expect(["SUCCEEDED run", "FAILED run_too_large"]).toContain(
          `${run.status} ${run.error_code ?? "run"}`,
        );
        const published = await publishedAnalyses(database.pool, api.account.accountId);
        const own = published.filter(({ analysis }) => analysis.id === id);
        expect(own.map(({ analysis }) => analysis.status)).toEqual([run.status.toLowerCase()]);
        if (run.status === "FAILED") return;
        const ids = run.node_runs.map(({ node_id }) => String(node_id));
        expect([...ids].sort()).toEqual(definition.nodes.map((node) => node.id).sort());
        for (const [index, nodeRun] of run.node_runs.entries()) {
          const sources = sourcesOf(definition, String(nodeRun.node_id));
          expect(ids.slice(0, index)).toEqual(expect.arrayContaining([...sources]));
          const given = sources.map((source) => run.node_runs[ids.indexOf(source)]!.output_counts);
          const items = (given as { items: number }[]).reduce((sum, counts) => sum + counts.items, 0);
          expect(nodeRun).toMatchObject({ status: "SUCCEEDED", sequence: index + 1, input_count: items });
          const made = (nodeRun.output_counts as { items: number }).items;
          if (["wait", "analyze"].includes(String(nodeRun.node_kind))) expect(made).toBe(items);
        }
      },
    );
    await fc.assert(property, { numRuns: RUNS, seed: SEED });
  },
  patience(120_000),
);
