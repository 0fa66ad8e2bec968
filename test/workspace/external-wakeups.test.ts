// How soon, and after whatever, a node that waits for an analysis goes on.
import { describe, expect, test } from "vitest";
import { createAccount } from "../../src/accounts/accounts-sql.ts";
import { createDispatchPool } from "../../src/base/database/pools.ts";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { NODE_STEPS } from "../../src/workspace/nodes/node-steps.ts";
import { recordResult, recordStart } from "../../src/workspace/running/step-record.ts";
import { readStep } from "../../src/workspace/store/steps.ts";
import { countRows, publishAny, SECRETS_KEY } from "../support/installation.ts";
import { patience } from "../support/time-limits.ts";
import { EXTERNAL, publishIt, read, waiting } from "./external-world.ts";
import { api, database, objects, runs, space, stepping, useRuns } from "./run-world.ts";
import {
  claimNext,
  endWaits,
  readFeeds,
  sequenceAll,
  startTestRunner,
  stepAll,
  stepOnce,
  take,
} from "./support/runs.ts";

useRuns();

describe("no wake-up is lost", () => {
  test("when the analysis was there before the node began", async () => {
    const { id } = await runs.started(await runs.newWorkflow(space.id, EXTERNAL));
    expect(await stepOnce(stepping())).toBe("recorded");
    const [, nodeRun] = (await runs.get(id)).node_runs;
    await publishIt(`${id}:${nodeRun!.id}`);
    await read();
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.events(id)).some(({ kind }) => kind === "node.waiting")).toBe(false);
  });

  test("when the feed was read between the node's look and the record of its wait", async () => {
    const { run: other } = await waiting();
    const { id } = await runs.started(await runs.newWorkflow(space.id, EXTERNAL));
    const look = NODE_STEPS.external_analysis;
    const nodeSteps = {
      external_analysis: async (input: Parameters<typeof look>[0]) => {
        const result = await look(input);
        if (result.kind === "waiting") {
          await publishIt(`${input.runId}:${input.nodeRunId}`);
          await read();
        }
        return result;
      },
    };
    expect(await stepAll({ ...stepping(), nodeSteps })).toBe("run_succeeded");
    expect((await runs.get(id)).status).toBe("SUCCEEDED");
    const kinds = (await runs.events(id)).map(({ kind }) => kind);
    expect(kinds).toEqual(expect.arrayContaining(["node.waiting", "node.resumed"]));
    expect((await runs.cancel(other.id)).status).toBe(200);
  });

  test("when the feed was read before the record of a wait was committed", async () => {
    const { run: other } = await waiting();
    const { id } = await runs.started(await runs.newWorkflow(space.id, EXTERNAL));
    expect(await stepOnce(stepping())).toBe("recorded");
    const step = (await readStep(database.pool, (await claimNext(database.pool))!))!;
    await inTransaction(database.pool, (tx) => recordStart(tx, step));
    const analysisId = `${id}:${step.nodeRunId}`;
    await inTransaction(database.pool, async (tx) => {
      const until = new Date(Date.now() + 3_600_000);
      expect(await recordResult(tx, step, { kind: "waiting", until, analysisId })).toBe("recorded");
      await publishIt(analysisId);
      await read();
    });
    await read();
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.get(id)).status).toBe("SUCCEEDED");
    expect((await runs.cancel(other.id)).status).toBe(200);
  });

  test("when somebody has just taken the step, whose it stays", async () => {
    const { run, analysisId } = await waiting();
    await endWaits(database.pool);
    const step = (await claimNext(database.pool))!;
    await publishIt(analysisId);
    await read();
    expect(await claimNext(database.pool)).toBe(null);
    expect(await take(stepping(), step)).toBe("run_succeeded");
    expect((await runs.get(run.id)).status).toBe("SUCCEEDED");
  });

  test(
    "when waits begin while analyses are published and several processes read",
    async () => {
      const count = 40;
      const workflow_id = await runs.newWorkflow(space.id, EXTERNAL);
      await Promise.all(Array.from({ length: count }, () => runs.started(workflow_id)));
      // All have come to the node that will wait.
      for (let n = 0; n < count; n++) expect(await stepOnce(stepping())).toBe("recorded");
      const look = NODE_STEPS.external_analysis;
      const publishing: Promise<unknown>[] = [];
      const nodeSteps = {
        external_analysis: async (input: Parameters<typeof look>[0]) => {
          const result = await look(input);
          if (result.kind === "waiting") publishing.push(publishIt(`${input.runId}:${input.nodeRunId}`));
          return result;
        },
      };
      const isOver = new AbortController();
      const reading = [1, 2].map(async () => {
        while (!isOver.signal.aborted) await read();
      });
      const succeeded = () =>
        countRows(database.pool, "workspace.runs", { status: "SUCCEEDED", workflow_id });
      const giveUpAtMs = performance.now() + patience(20_000);
      const steppingOn = async () => {
        do await stepAll({ ...stepping(), nodeSteps });
        while ((await succeeded()) < count && performance.now() < giveUpAtMs);
      };
      await Promise.all([steppingOn(), steppingOn()]);
      isOver.abort();
      await Promise.all([...reading, ...publishing]);
      expect(await succeeded()).toBe(count);
    },
    patience(60_000),
  );

  test("when more was published before than one read takes", async () => {
    const { run, analysisId } = await waiting();
    await publishAny(database.pool, api.account.accountId, 1_500);
    await publishIt(analysisId);
    await read();
    expect(await stepAll(stepping())).toBe("run_succeeded");
    expect((await runs.get(run.id)).status).toBe("SUCCEEDED");
  });

  test("when thousands wait, whatever the plan was made for", async () => {
    const { run, analysisId } = await waiting();
    await database.pool.query(
      `insert into workspace.node_runs (account_id, run_id, sequence, node_id, input_count, status, is_ready, next_at,
         awaited_analysis_id)
       select account_id, run_id, 1000 + n, 'n' || n, 0, 'WAITING', false, next_at, 'other-' || n
       from workspace.node_runs, generate_series(1, 3000) as n where run_id = $1 and sequence = 2`,
      [run.id],
    );
    await publishAny(database.pool, api.account.accountId, 1_000);
    await publishIt(analysisId);
    const pool = createDispatchPool({
      databaseUrl: database.url,
      connectionsMax: 1,
      applicationName: "generic plans",
      onError: () => undefined,
    });
    await readFeeds(pool);
    await pool.end();
    const { rows } = await database.pool.query(
      "select sequence from workspace.node_runs where run_id = $1 and is_ready",
      [run.id],
    );
    expect(rows).toEqual([{ sequence: 2 }]);
    // The others have no nodes.
    await database.pool.query("delete from workspace.runs where id = $1", [run.id]);
  });
});

test("feeds are read on without a rest while there is more", async () => {
  const { run, analysisId } = await waiting();
  await publishAny(database.pool, api.account.accountId, 2_500);
  await publishIt(analysisId);
  await sequenceAll(database.pool);
  const runner = startTestRunner(database.pool, objects, { readFeedsEveryMs: 3_600_000 });
  expect((await runs.ended(run.id)).status).toBe("SUCCEEDED");
  await runner.stop();
  expect(runner.errors).toEqual([]);
});

test("what goes wrong with one account's feed keeps no other one waiting", async () => {
  const { accountId } = await createAccount(database.pool, "odd", SECRETS_KEY);
  await database.pool.query("insert into workspace.workspaces (account_id) values ($1)", [accountId]);
  await database.pool.query("insert into workspace.feed_readers (account_id, position) values ($1, 0)", [
    accountId,
  ]);
  await database.pool.query(
    `alter table workspace.feed_readers add constraint odd check (account_id <> '${accountId}' or position = 0)`,
  );
  await publishIt("any", {}, accountId);
  const { run, analysisId } = await waiting();
  await publishIt(analysisId);
  await sequenceAll(database.pool);
  const runner = startTestRunner(database.pool, objects);
  expect((await runs.ended(run.id)).status).toBe("SUCCEEDED");
  await runner.stop();
  expect(runner.errors.map(String)).toContainEqual(expect.stringContaining('"odd"'));
  await database.pool.query("alter table workspace.feed_readers drop constraint odd");
});
