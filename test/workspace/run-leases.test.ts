// Whose a step is: leases, their tokens, and what nobody waits for.
import { beforeEach, expect, test } from "vitest";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import { removeEndedRuns } from "../../src/workspace/store/runs.ts";
import { giveBackStep } from "../../src/workspace/store/steps.ts";
import { countRows } from "../support/installation.ts";
import { database, documents, objects, runs, space, stepping, useRuns } from "./run-world.ts";
import { passedOn } from "./support/object-stores.ts";
import { chain, claimNext, endWaits, startTestRunner, stepAll, take } from "./support/runs.ts";

useRuns();
beforeEach(async () => {
  expect(await claimNext(database.pool)).toBeNull();
});

test("whoever has lost a step does no work, and gives nothing back", async () => {
  const { id } = await runs.started(await runs.newWorkflow(space.id, chain()));
  const worked: unknown[] = [];
  const working = {
    ...stepping(),
    nodeSteps: {
      manual_trigger: async () => {
        worked.push(id);
        return { kind: "progressed", items: [], position: worked.length } as const;
      },
    },
  };
  // Lost after it was read, and before it began: the run is held meanwhile.
  const client = await database.pool.connect();
  await client.query("begin");
  await client.query("select from workspace.runs where id = $1 for no key update", [id]);
  const first = (await claimNext(database.pool))!;
  const taking = take(working, first);
  const waiting =
    "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
  await expect.poll(async () => (await database.pool.query(waiting)).rowCount).toBe(1);
  await endWaits(database.pool);
  const second = (await claimNext(database.pool))!;
  await client.query("commit");
  client.release();
  expect([await taking, worked]).toEqual(["lost", []]);
  await giveBackStep(database.pool, first);
  expect(await claimNext(database.pool)).toBeNull();
  expect([await take(working, second), worked]).toEqual(["recorded", [id]]);

  // Lost before it was read; its node has begun.
  const third = (await claimNext(database.pool))!;
  await endWaits(database.pool);
  const fourth = (await claimNext(database.pool))!;
  expect([await take(working, third), worked]).toEqual(["lost", [id]]);
  expect(await take(stepping(), fourth)).toBe("run_succeeded");
  expect((await runs.events(id)).filter(({ kind }) => kind === "node.started")).toHaveLength(1);
});

test("who looks for work waits for nobody else's, nor who removes what has ended", async () => {
  const workflow = await runs.newWorkflow(space.id, chain());
  const ids: unknown[] = [];
  for (let n = 0; n < 3; n++) ids.push((await runs.started(workflow)).id);
  // The first one's lease is over, the second one's step is ready; somebody has both.
  await claimNext(database.pool);
  await endWaits(database.pool);
  const client = await database.pool.connect();
  const hold = (table: string, id: string, some: readonly unknown[]) =>
    client.query(`select from workspace.${table} where ${id} = any ($1) for no key update`, [some]);
  await client.query("begin");
  await hold("node_runs", "run_id", ids.slice(0, 2));
  const third = (await claimNext(database.pool))!;
  expect(third.runId).toBe(ids[2]);
  expect(await claimNext(database.pool)).toBeNull();
  expect(await take(stepping(), third)).toBe("run_succeeded");
  await client.query("rollback");
  await stepAll(stepping());

  await client.query("begin");
  await hold("runs", "id", ids.slice(0, 1));
  while (await removeEndedRuns(database.pool, 0));
  expect(await countRows(database.pool, "workspace.runs", { id: ids[0] })).toBe(1);
  expect(await countRows(database.pool, "workspace.runs", { id: ids[1] })).toBe(0);
  await client.query("rollback");
  client.release();
});

test("a step that takes long is held by whoever takes it, and given up when it is lost", async () => {
  const { id: document_id } = await documents.uploaded({ space_id: space.id, file_name: "slow" });
  const workflow = await runs.newWorkflow(space.id, chain({ kind: "analyze" }));
  const { id } = await runs.started(workflow, { input: { document_id } });
  const begun = Promise.withResolvers<void>();
  const aborted = Promise.withResolvers<void>();
  const hanging: ObjectStore = {
    ...passedOn(objects),
    get: (_key, _range, signal) =>
      new Promise((_, reject) => {
        signal?.addEventListener("abort", () => {
          aborted.resolve();
          reject(signal.reason);
        });
        begun.resolve();
      }),
  };
  const runner = startTestRunner(database.pool, hanging, { leaseMs: 1_000 });
  await begun.promise;
  const ends = new Set<string>();
  const lease = async () => {
    const { rows } = await database.pool.query<{ token: string; attempt: number; ends: string }>(
      `select lease_token as token, attempt, next_at::text as ends from workspace.node_runs
       where run_id = $1 and node_id = 'node-0'`,
      [id],
    );
    ends.add(rows[0]!.ends);
    return rows[0]!;
  };
  const { token } = await lease();
  await expect.poll(async () => (await lease()) && ends.size).toBeGreaterThan(4);
  expect(await lease()).toMatchObject({ token, attempt: 1 });
  await database.pool.query(
    `update workspace.node_runs set lease_token = gen_random_uuid(), next_at = now() + interval '1 hour'
     where run_id = $1 and node_id = 'node-0'`,
    [id],
  );
  await aborted.promise;
  await runner.stop();
  expect(runner.errors).toEqual([]);
  await endWaits(database.pool);
  expect(await stepAll(stepping())).toBe("run_succeeded");
});
