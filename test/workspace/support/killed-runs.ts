// Runs while everything is killed again and again: the API, dispatchers, and the processes of their steps.
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { publish } from "../../support/installation.ts";
import { ask } from "../../support/sealpost-api.ts";
import { killRepeatedly, type SealpostProcess } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";
import { openRunSite, type RunSite } from "./run-processes.ts";
import { chain, publishedAnalyses } from "./runs.ts";

const DISPATCHERS = 2;
const DOCUMENTS = 3;
/** Runs that are started just when everything is killed, so that some of their requests are cut. */
const STARTED_AT_ONCE = 8;
/** What whoever asks again may be told: the database is still at a request that was cut. All else is for good. */
const PASSING: readonly unknown[] = ["idempotency_in_progress", "temporarily_unavailable"];

export type KilledRuns = {
  readonly runs: number;
  /** How long all live, from when the first step is recorded. */
  readonly liveMs: number;
  readonly kills: number;
  /** Whether steps that were cut are taken again at once, as if their leases were over. */
  readonly endsLeases: boolean;
};

/** Each run is started once, ends once, is published once, and its webhook arrives. */
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
      { kind: "external_analysis" },
    );
    const callers = callersOf(site, await runs.newWorkflow(space_id, definition));
    // A webhook that was cut is soon tried again.
    const env = { RETRY_WINDOW_SECONDS: "600" };
    const startAll = async () => {
      const [serve, ...dispatchers] = await Promise.all([
        site.startServe(),
        ...Array.from({ length: DISPATCHERS }, () => site.startDispatcher(env)),
      ]);
      callers.turnTo(serve);
      return [serve, ...dispatchers];
    };
    const countRowsWhere = async (table: string, where: string): Promise<number> =>
      Number(
        (await database.pool.query(`select count(*) as n from workspace.${table} where ${where}`)).rows[0].n,
      );
    const unfinished = () => countRowsWhere("runs", "completed_at is null");
    const events = () => countRowsWhere("run_events", "true");
    await using _ = startEngine(site);
    const timeout = patience(60_000) + count * 200;
    let cut = 0;
    const killed = await killRepeatedly({
      count: kills,
      start: startAll,
      until: async (kill) => {
        callers.startUpTo(Math.min(STARTED_AT_ONCE, count));
        if (kill > 0 && callers.asked() === count && (await unfinished()) === 0) return false;
        const before = await events();
        await expect
          .poll(async () => (await events()) > before || (await unfinished()) === 0, { timeout })
          .toBe(true);
        await sleep(liveMs);
        callers.startUpTo(Math.min(callers.asked() + STARTED_AT_ONCE, count));
        return await sleep(kill % 10);
      },
      between: async () => {
        cut += await countRowsWhere("node_runs", "lease_token is not null and next_at > now()");
        if (!endsLeases) return;
        await database.pool.query(
          "update workspace.node_runs set next_at = now() where lease_token is not null",
        );
      },
    });
    const processes = await startAll();
    callers.startUpTo(count);
    const ids = await callers.started();
    await expect.poll(unfinished, { timeout, interval: 100 }).toBe(0);
    expect([new Set(ids).size, await countRowsWhere("runs", "true")]).toEqual([count, count]);
    const arrived = () =>
      new Set(receiver.requests.map(({ body }) => JSON.parse(body.toString()).data.id as string)).size;
    // The engine's have webhooks of their own.
    await expect.poll(arrived, { timeout, interval: 100 }).toBe(2 * count);
    const published = await publishedAnalyses(database.pool, api.account.accountId);
    const runIds = published.map(({ analysis }) => String(analysis.id).split(":")[0]);
    expect(runIds.sort()).toEqual([...ids, ...ids].sort());
    for (const id of ids) {
      const run = await runs.get(id);
      expect([run.status, run.error_code]).toEqual(["SUCCEEDED", null]);
      expect(run.node_runs.map(({ output_counts }) => output_counts)).toEqual(
        [1, DOCUMENTS, DOCUMENTS, DOCUMENTS, 1].map((items) => ({ items, errors: 0 })),
      );
      expect(await runs.items(id, "node-2")).toHaveLength(DOCUMENTS);
      const kinds = (await runs.events(id)).map(({ kind }) => String(kind));
      expect(kinds.filter((kind) => kind.startsWith("run.") && kind !== "run.waiting")).toEqual([
        ...["run.created", "run.started", "run.succeeded"],
      ]);
    }
    await Promise.all(processes.map((one) => one.stop()));
    console.log(
      `${count} runs were started and ended once each while all was killed ${killed} times: ${cut} steps were cut, ` +
        `and ${callers.cut()} requests`,
    );
  } finally {
    await site.close();
  }
}

/** Publishes each analysis that a node waits for, until it is disposed of. It lives through all kills. */
function startEngine({ api: { account }, database: { pool } }: RunSite): AsyncDisposable {
  const stopping = new AbortController();
  const work = async () => {
    while (!stopping.signal.aborted) {
      const { rows } = await pool.query<{ id: string }>(
        "select awaited_analysis_id as id from workspace.node_runs where awaited_analysis_id is not null",
      );
      for (const { id } of rows) {
        await publish(pool, account.accountId, JSON.stringify({ id, status: "succeeded" }));
      }
      await sleep(50);
    }
  };
  const working = work();
  return {
    [Symbol.asyncDispose]: async () => {
      stopping.abort();
      await working;
    },
  };
}

/** Each asks for one run, and again with the same Idempotency-Key until it has an answer. */
function callersOf({ api: { account } }: RunSite, workflowId: string) {
  let url = "";
  let cut = 0;
  const asked: Promise<string>[] = [];
  const start = async (n: number): Promise<string> => {
    const options = { key: account.key, idempotencyKey: `run-${n}`, body: { input: { n } } };
    for (;;) {
      const answer = await ask(url, "POST", `/v1/workflows/${workflowId}/runs`, options).catch((error) => {
        if (error.cause?.code !== "ECONNREFUSED") cut++;
        return null;
      });
      if (answer?.status === 202) return String(answer.body.id);
      if (answer !== null && !PASSING.includes(answer.body?.code)) {
        throw new Error(`The API answers ${answer.status}: ${JSON.stringify(answer.body)}`);
      }
      await sleep(50);
    }
  };
  return {
    turnTo: (serve: SealpostProcess) => {
      url = serve.url;
    },
    startUpTo: (count: number) => {
      while (asked.length < count) asked.push(start(asked.length));
    },
    asked: () => asked.length,
    started: () => Promise.all(asked),
    cut: () => cut,
  };
}
