// Accounts with many steps to take leave another one's its turn.
import { expect, test } from "vitest";
import { claimStep, giveBackStep, makeStepsReady } from "../../src/workspace/store/steps.ts";
import { GREEDY_COUNTS } from "../support/fair-shares.ts";
import type { TestAccount } from "../support/sealpost-api.ts";
import { api, database, documents, runs, useRuns } from "./run-world.ts";
import { chain } from "./support/runs.ts";

const FIRST = "00000000-0000-0000-0000-000000000000";
const TRIES = 20;

useRuns();

/** Runs whose steps are all to be taken. */
async function start(account: TestAccount, count: number): Promise<void> {
  const { key } = account;
  const space = await documents.newSpace("steps", { key });
  const workflow = await runs.newWorkflow(space.id, chain(), { key });
  for (let n = 0; n < count; n++) await runs.started(workflow, {}, { key });
}

test.each(GREEDY_COUNTS)(
  "beside %i greedy accounts a step is taken after one of each at most",
  async (count) => {
    for (let n = 0; n < count; n++) await start(await api.newAccount(), 4);
    const victim = await api.newAccount();
    await start(victim, 1);
    await makeStepsReady(database.pool);
    const { rows } = await database.pool.query(
      "select count(distinct account_id)::integer as accounts from workspace.node_runs where is_ready",
    );
    let after = FIRST;
    for (let tries = 0; tries < TRIES; tries++) {
      let claims = 0;
      let isVictims = false;
      while (!isVictims) {
        const step =
          (await claimStep(database.pool, after, 60_000)) ?? (await claimStep(database.pool, FIRST, 60_000));
        claims++;
        after = step!.accountId;
        isVictims = after === victim.accountId;
        // Its next one is there at once.
        await giveBackStep(database.pool, step!);
      }
      expect(claims).toBeLessThanOrEqual(rows[0].accounts);
    }
  },
);

const DUE_OF_EACH = 3_000;
const LOOKED_FOR = 500;

/** Waits of an account, in one run of many nodes, that have ended before any other's. */
async function endAtOnce(account: TestAccount, count: number): Promise<void> {
  await start(account, 1);
  await database.pool.query(
    `insert into workspace.node_runs (account_id, run_id, sequence, node_id, status, input_count, is_ready, next_at)
     select account_id, id, n, 'many-' || n, 'WAITING', 0, false, now() - interval '1 hour'
     from workspace.runs, generate_series(1001, 1000 + $2) as n where account_id = $1`,
    [account.accountId, count],
  );
}

test.each([1, 20])("beside %i accounts whose waits end together, one's own ends at once", async (count) => {
  const { pool } = database;
  for (let n = 0; n < count; n++) await endAtOnce(await api.newAccount(), DUE_OF_EACH);
  const victim = await api.newAccount();
  await start(victim, 1);
  const ready = async (accountIds: string) => {
    const text = `select from workspace.node_runs where is_ready and ${accountIds}`;
    return (await pool.query(text, [victim.accountId])).rowCount!;
  };
  await pool.query("update workspace.node_runs set is_ready = false, next_at = now() where account_id = $1", [
    victim.accountId,
  ]);
  const before = await ready("account_id <> $1");
  await makeStepsReady(pool);
  expect(await ready("account_id = $1")).toBe(1);
  // Nobody's room is left empty for it.
  expect(await ready("account_id <> $1")).toBe(before + LOOKED_FOR - 1);
});
