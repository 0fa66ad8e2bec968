// What becomes of documents' objects, and of workflow runs.
import { rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { pathOf } from "../../src/workspace/objects/file-store.ts";
import { playCauses, repeating, startAlerting } from "../support/alert-causes.ts";
import { childrenOf, signal } from "../support/child-processes.ts";
import type { Prometheus } from "../support/prometheus.ts";
import type { Json } from "../support/sealpost-api.ts";
import type { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { endLeases } from "./support/moving.ts";
import { openRunSite, type RunSite } from "./support/run-processes.ts";
import { chain } from "./support/runs.ts";

const RUNS_AT_ONCE = 25;

let site: RunSite;
let dispatcher: SealpostProcess;
let prometheus: Prometheus;
let document: Json;
let workflow: string;

beforeAll(async () => {
  site = await openRunSite();
  dispatcher = await site.startDispatcher();
  const { id: space_id } = await site.documents.newSpace();
  document = await site.documents.uploaded({ space_id });
  workflow = await site.runs.newWorkflow(space_id, chain());
  prometheus = await startAlerting({ "sealpost-dispatch": [dispatcher.metricsHost] });
}, patience(60_000));
afterAll(async () => {
  await prometheus.close();
  await dispatcher.stop();
  await site.close();
});

playCauses(
  () => prometheus,
  [
    {
      what: "a document was renamed two hours ago, and the objects' disk is not mounted",
      alerts: ["SealpostRelocationsStalled"],
      begin: async () => {
        await rename(objects(), `${objects()}-away`);
        await renameDocument("Renamed.txt");
        await site.database.pool.query("update workspace.moves set asked_at = asked_at - interval '2 hours'");
      },
      end: async () => {
        await rm(objects(), { recursive: true, force: true });
        await rename(`${objects()}-away`, objects());
        await endLeases(site.database.pool);
      },
    },
    {
      what: "no step is taken by a process that hangs, and one has been ready for ten minutes",
      alerts: ["SealpostRunsStandStill"],
      begin: async () => {
        // Who has no runs has no such process.
        const { id } = await site.runs.started(workflow);
        await site.runs.ended(id);
        signalSteps("SIGSTOP");
        await startRuns(1);
        await makeReadySince("10 minutes");
      },
      end: () => signalSteps("SIGCONT"),
    },
    {
      what: "runs were started 40 minutes ago, more than there is time for",
      alerts: ["SealpostRunsBehind"],
      ...repeating(1, async () => {
        await startRuns(RUNS_AT_ONCE);
        await makeReadySince("40 minutes");
      }),
    },
    {
      what: "somebody has removed a document's object",
      alerts: ["SealpostObjectsLost"],
      begin: async () => {
        const { body } = await site.documents.get(document.id);
        await rm(join(objects(), "keys", pathOf(String(body.storage_key))));
        await renameDocument("Renamed again.txt");
      },
    },
  ],
);

const objects = () => join(site.api.stateDir, "objects");

async function renameDocument(fileName: string): Promise<void> {
  ({ body: document } = await site.documents.rename(document.id, fileName));
}

function signalSteps(name: NodeJS.Signals): void {
  for (const pid of childrenOf(dispatcher.pid)) signal(pid, name);
}

async function startRuns(count: number): Promise<void> {
  let left = count;
  const start = async () => {
    while (left-- > 0) await site.runs.started(workflow);
  };
  await Promise.all(Array.from({ length: 8 }, start));
}

async function makeReadySince(since: string): Promise<void> {
  await site.database.pool.query(
    "update workspace.node_runs set next_at = now() - $1::interval where is_ready",
    [since],
  );
}
