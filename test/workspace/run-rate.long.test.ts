import { afterAll, beforeAll, expect, test } from "vitest";
import { childrenOf, rssBytes } from "../support/child-processes.ts";
import { patience } from "../support/time-limits.ts";
import { openRunSite, type RunSite } from "./support/run-processes.ts";
import { chain } from "./support/runs.ts";

const DOCUMENTS = 1_000;
const AT_ONCE = 10;
const TEXT = Buffer.from("What a document of a few pages says, and says again. ".repeat(100));

let site: RunSite;
beforeAll(async () => {
  site = await openRunSite();
});
afterAll(() => site.close());

test(
  "a run of 1,000 documents takes many steps, and is published once",
  async () => {
    const { documents, runs, receiver } = site;
    const { id: space_id } = await documents.newSpace();
    for (let n = 0; n < DOCUMENTS; n += AT_ONCE) {
      const some = Array.from({ length: AT_ONCE }, (_, m) => `${n + m}.txt`);
      await Promise.all(some.map((file_name) => documents.uploaded({ space_id, file_name }, TEXT)));
    }
    const dispatcher = await site.startDispatcher();
    const workflow = await runs.newWorkflow(space_id, chain({ kind: "documents" }, { kind: "analyze" }));
    const { id } = await runs.started(workflow);
    const run = await runs.ended(id, 120_000);
    expect(run.status).toBe("SUCCEEDED");
    const analyzed = run.node_runs[2]!;
    expect(analyzed.output_counts).toEqual({ items: DOCUMENTS, errors: 0 });
    const steps = (await runs.events(id)).filter(({ kind }) => kind === "node.progressed").length;
    expect(steps).toBeGreaterThan(5);
    await receiver.waitForRequests(1);
    const [child] = childrenOf(dispatcher.pid);
    const mebibytes = Math.round((await rssBytes(child!)) / 1_048_576);
    const tookMs = Number(analyzed.duration_ms);
    console.log(
      `${DOCUMENTS} documents of ${TEXT.length} bytes took ${tookMs} ms, ` +
        `${Math.round((DOCUMENTS * 1_000) / tookMs)} a second, in ${steps} steps; ${mebibytes} MiB`,
    );
    await dispatcher.stop();
  },
  patience(300_000),
);
