// Runs whose dispatchers, with the processes of their steps, are killed again and again.
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { RunningProcess } from "../../support/sealpost-processes.ts";
import { patience } from "../../support/time-limits.ts";
import { openRunSite } from "./run-processes.ts";
import { chain, publishedAnalyses } from "./runs.ts";

const DISPATCHERS = 2;
const DOCUMENTS = 3;

export type KilledRuns = {
  readonly runs: number;
  /** How long all live, from when the first step is recorded. */
  readonly liveMs: number;
  readonly kills: number;
  /** Whether steps that were cut are taken again at once, as if their leases were over. */
  readonly endsLeases: boolean;
};

/** Each run ends once, is published once, and its webhook arrives. */
export async function expectRunsToSurvive({
  runs: count,
  liveMs,
  kills,
  endsLeases,
}: KilledRuns): Promise<void> {
  const site = await openRunSite();
  const { api, database, documents, receiver, runs } = site;
  try {
    const { id: space_id } = await documents.newSpace();
    for (let n = 0; n < DOCUMENTS; n++) await documents.uploaded({ space_id, file_name: `${n}.txt` });
    const definition = chain(
      { kind: "documents" },
      { kind: "analyze" },
      { kind: "wait", parameters: { for_seconds: 1 } },
    );
    const workflow = await runs.newWorkflow(space_id, definition);
    const ids: string[] = [];
    for (let n = 0; n < count; n++) ids.push((await runs.started(workflow, { input: { n } })).id);
    // A webhook that was cut is soon tried again.
    const env = { RETRY_WINDOW_SECONDS: "600" };
    const startAll = () => Promise.all(Array.from({ length: DISPATCHERS }, () => site.startDispatcher(env)));
    const countRowsWhere = async (table: string, where: string): Promise<number> =>
      Number(
        (await database.pool.query(`select count(*) as n from workspace.${table} where ${where}`)).rows[0].n,
      );
    const unfinished = () => countRowsWhere("runs", "completed_at is null");
    const events = () => countRowsWhere("run_events", "true");
    const timeout = patience(60_000) + count * 200;
    let cut = 0;
    let processes = await startAll();
    let killed = 0;
    for (; killed < kills && (await unfinished()) > 0; killed++) {
      const before = await events();
      await expect
        .poll(async () => (await events()) > before || (await unfinished()) === 0, { timeout })
        .toBe(true);
      await sleep(liveMs);
      await Promise.all(processes.map(killAll));
      cut += await countRowsWhere("node_runs", "lease_token is not null and next_at > now()");
      if (endsLeases) {
        await database.pool.query(
          "update workspace.node_runs set next_at = now() where lease_token is not null",
        );
      }
      processes = await startAll();
    }
    await expect.poll(unfinished, { timeout, interval: 100 }).toBe(0);
    const arrived = () =>
      new Set(receiver.requests.map(({ body }) => JSON.parse(body.toString()).data.id as string)).size;
    await expect.poll(arrived, { timeout, interval: 100 }).toBe(count);
    const published = await publishedAnalyses(database.pool, api.account.accountId);
    expect(published.map(({ analysis }) => analysis.id).sort()).toEqual([...ids].sort());
    for (const id of ids) {
      const run = await runs.get(id);
      expect([run.status, run.error_code]).toEqual(["SUCCEEDED", null]);
      expect(run.node_runs.map(({ output_counts }) => output_counts)).toEqual(
        [1, DOCUMENTS, DOCUMENTS, DOCUMENTS].map((items) => ({ items, errors: 0 })),
      );
      expect(await runs.items(id, "node-2")).toHaveLength(DOCUMENTS);
      const kinds = (await runs.events(id)).map(({ kind }) => String(kind));
      expect(kinds.filter((kind) => kind.startsWith("run.") && kind !== "run.waiting")).toEqual([
        ...["run.created", "run.started", "run.succeeded"],
      ]);
    }
    await Promise.all(processes.map(({ end }) => end("SIGTERM")));
    console.log(
      `${count} runs ended once each while all was killed ${killed} times, and ${cut} steps were cut`,
    );
  } finally {
    await site.close();
  }
}

/** The dispatcher, and the process of its steps, which would otherwise end by itself. */
async function killAll({ child, end }: RunningProcess): Promise<void> {
  const { pid } = child;
  const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8").catch(() => "");
  const ended = end("SIGKILL");
  for (const one of children.split(" ").filter((text) => text !== "")) {
    try {
      process.kill(Number(one), "SIGKILL");
    } catch {
      // It has ended.
    }
  }
  await ended;
}
