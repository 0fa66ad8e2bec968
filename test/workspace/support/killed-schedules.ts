// Thousands of workflows that are due at once, while dispatchers are killed.
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { killRepeatedly } from "../../support/sealpost-process.ts";
import { patience } from "../../support/time-limits.ts";
import { openRunSite } from "./run-processes.ts";
import { chain } from "./runs.ts";

const ACCOUNTS = 25;

/** Each has one run in the end. @param ofEach workflows of each account: a user may have 500 runs at a time */
export async function expectOneRunEach(ofEach: number, kills: number): Promise<void> {
  const site = await openRunSite();
  const { api, database, documents, runs } = site;
  const { pool } = database;
  try {
    for (let n = 0; n < ACCOUNTS; n++) {
      const { key } = await api.newAccount();
      const { id: space_id } = await documents.newSpace("many", { key });
      await runs.newWorkflow(space_id, chain(), { key });
    }
    // A minute ago, and not again for a year.
    await pool.query(
      `with made as (
         insert into workspace.workflows (account_id, space_id, name, draft, created_by)
         select account_id, space_id, name, draft, created_by from workspace.workflows, generate_series(2, $1)
       returning account_id, id, draft, created_by), versions as (
         insert into workspace.workflow_versions (account_id, workflow_id, version, definition, created_by)
         select account_id, id, 1, draft, created_by from made)
       select`,
      [ofEach],
    );
    await pool.query("update workspace.workflows set current_version = 1");
    await pool.query(
      `insert into workspace.schedules (account_id, workflow_id, node_id, cron, time_zone, catch_up_seconds,
         done_until, next_at)
       select account_id, id, 'trigger', to_char(due at time zone 'UTC', 'MI HH24 DD MM "*"'), 'UTC', 604800,
         due - interval '1 hour', due
       from workspace.workflows, (select now() - interval '1 minute' as due) as times`,
    );
    const count = async (what: string): Promise<number> =>
      (await pool.query(`select count(${what})::integer as n from workspace.runs`)).rows[0].n;
    const all = ACCOUNTS * ofEach;
    const timeout = patience(120_000);
    const start = () => Promise.all([site.startDispatcher(), site.startDispatcher()]);
    const killed = await killRepeatedly({
      count: kills,
      start,
      until: async (kill) => {
        const before = await count("*");
        await expect.poll(() => count("*"), { timeout, interval: 20 }).toBeGreaterThan(before);
        await sleep(100 + 37 * kill);
      },
    });
    const atLast = await count("*");
    const startedMs = performance.now();
    const processes = await start();
    await expect.poll(() => count("*"), { timeout, interval: 100 }).toBe(all);
    const tookMs = performance.now() - startedMs;
    expect(await count("distinct workflow_id")).toBe(all);
    const { rows } = await pool.query(
      "select count(*)::integer as n from workspace.schedules where next_at > now() + interval '300 days'",
    );
    expect(rows).toEqual([{ n: all }]);
    await Promise.all(processes.map((one) => one.stop()));
    expect(await count("*")).toBe(all);
    const seconds = (tookMs / 1_000).toFixed(1);
    console.log(`killed ${killed} times; then ${all - atLast} of ${all} runs were started in ${seconds} s`);
  } finally {
    await site.close();
  }
}
