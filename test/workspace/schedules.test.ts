// Workflows that are run by a schedule.
import { describe, expect, test } from "vitest";
import { inTransaction } from "../../src/base/database/transaction.ts";
import { beginErasure } from "../../src/cells/erasures-sql.ts";
import type { Definition } from "../../src/workspace/model/definition.ts";
import { createScheduling } from "../../src/workspace/running/schedules.ts";
import { rowsOf } from "../support/installation.ts";
import type { AskOptions, Json, TestAccount } from "../support/sealpost-api.ts";
import { newUser, setRole } from "./membership-world.ts";
import { api, database, documents, runs, space, stepping, useRuns } from "./run-world.ts";
import { chain, stepAll } from "./support/runs.ts";
import { workflowsOf } from "./support/workflows.ts";

useRuns();

const workflows = workflowsOf((...asked) => api.ask(...asked));

function at(cron: string, more: object = {}): Definition {
  const parameters = { cron, ...more };
  return { nodes: [{ id: "at", kind: "schedule_trigger", name: "At", parameters }], edges: [] } as never;
}

/** As two dispatchers would, at a time. */
async function look(now: string | Date): Promise<void> {
  const both = [createScheduling(database.pool), createScheduling(database.pool)];
  await Promise.all(both.map((startDue) => startDue(new Date(now))));
}

/** The due times for which the workflow was run. */
async function ranFor(workflowId: unknown): Promise<readonly string[]> {
  const found = await rowsOf(database.pool, "workspace.runs", { workflow_id: workflowId });
  return found.map(({ begun_for }) => String(begun_for)).sort();
}

async function triggerOf(workflowId: unknown, options: AskOptions = {}): Promise<Json> {
  const { triggers } = (await workflows.get(workflowId, options)).body;
  return (triggers as Json[])[0]!;
}

test("starts a run when it is due, in the name of whoever published it", async () => {
  const definition = at("30 6 * * 1-5", { time_zone: "Europe/Berlin" });
  const { id, triggers } = await workflows.published(space.id, definition);
  const [trigger] = triggers as Json[];
  expect(trigger).toMatchObject({ node_id: "at", kind: "schedule", active: true, last_fired_at: null });
  // A Friday.
  await look("2040-06-01T04:29:59Z");
  expect(await ranFor(id)).toEqual([]);
  await look("2040-06-01T04:30:00Z");
  expect(await ranFor(id)).toEqual(["2040-06-01T04:30:00.000Z"]);
  expect(await triggerOf(id)).toMatchObject({
    ...{ id: trigger!.id, active: true, next_fire_at: "2040-06-04T04:30:00.000Z" },
    ...{ last_fired_at: "2040-06-01T04:30:00.000Z", last_error_code: null, last_error_message: null },
  });
  const { last_run } = (await workflows.get(id)).body as { last_run: Json };
  expect(await runs.get(last_run.id)).toMatchObject({
    ...{ origin: "schedule", actor_type: "system", trigger_id: trigger!.id, webhook_id: null },
    ...{
      trigger_node_id: "at",
      input: { due_at: "2040-06-01T04:30:00.000Z" },
      trace_id: null,
      webhook_url: null,
    },
    requested_by: { id: api.account.userId },
    version: { version: 1 },
  });
  expect(await stepAll(stepping())).toBe("run_succeeded");
  expect(await runs.items(last_run.id, "at")).toEqual([{ due_at: "2040-06-01T04:30:00.000Z" }]);
  expect((await runs.events(last_run.id)).map(({ kind }) => kind)[0]).toBe("run.created");
});

test("each due time has one run, over both changes of the clocks, and when the clock is set back", async () => {
  const zone = { time_zone: "Europe/Berlin", catch_up_seconds: 86_400 };
  const [hourly, nightly] = await Promise.all(
    ["0 * * * *", "30 2 * * *"].map((cron) => workflows.published(space.id, at(cron, zone))),
  );
  // From what was due before.
  await look("2041-03-30T12:00:00Z");
  const [hours, nights] = [[await ranFor(hourly!.id)].flat(), [await ranFor(nightly!.id)].flat()];
  for (const from of ["2041-03-30T12:00:00Z", "2041-10-26T12:00:00Z"]) {
    if (from > "2041-04") {
      await look(from);
      hours.push(from.replace("00Z", "00.000Z"));
      nights.push("2041-10-26T00:30:00.000Z");
    }
    for (let n = 1; n <= 3 * 24; n++) {
      const now = new Date(Date.parse(from) + n * 20 * 60_000);
      await look(now);
      if (n % 5 === 0) await look(new Date(now.getTime() - 3_600_000));
      if (n % 3 === 0) hours.push(now.toISOString());
    }
  }
  nights.push("2041-03-31T01:30:00.000Z", "2041-10-27T00:30:00.000Z");
  expect(await ranFor(hourly!.id)).toEqual(hours.sort());
  expect(await ranFor(nightly!.id)).toEqual(nights.sort());
});

test("of times that were missed the last one has a run, unless it is too late for that, too", async () => {
  const { id } = await workflows.published(space.id, at("*/10 * * * *", { catch_up_seconds: 300 }));
  await look("2042-01-01T00:00:00Z");
  await look("2042-01-01T05:04:00Z");
  await look("2042-01-01T06:16:00Z");
  await look("2042-01-01T06:20:00Z");
  expect(await ranFor(id)).toEqual(["00:00", "05:00", "06:20"].map((time) => `2042-01-01T${time}:00.000Z`));
  expect((await triggerOf(id)).next_fire_at).toBe("2042-01-01T06:30:00.000Z");
});

describe("what was published counts", () => {
  test("another version has its own times, and one without a schedule none", async () => {
    const { id } = await workflows.published(space.id, at("0 5 * * *"));
    const { id: triggerId } = await triggerOf(id);
    await workflows.save(id, 2, at("0 7 * * *"));
    await look("2043-01-01T05:00:00Z");
    expect((await workflows.publish(id)).status).toBe(200);
    await look("2043-01-02T05:00:00Z");
    await look("2043-01-02T07:00:00Z");
    expect(await ranFor(id)).toEqual(["2043-01-01T05:00:00.000Z", "2043-01-02T07:00:00.000Z"]);
    expect((await triggerOf(id)).id).toBe(triggerId);
    await workflows.save(id, 3, chain());
    expect((await workflows.publish(id)).body).toMatchObject({
      triggers: [],
      trigger_kinds: ["manual_trigger"],
    });
    await look("2043-01-03T07:00:00Z");
    expect((await ranFor(id)).length).toBe(2);
  });

  test("a due time that had its run has no second one by publishing the same again", async () => {
    const { id } = await workflows.published(space.id, at("0 5 * * *"));
    await look("2043-02-01T05:00:00Z");
    await workflows.save(id, 2, { ...at("0 5 * * *", { catch_up_seconds: 7_200 }) });
    expect((await workflows.publish(id)).status).toBe(200);
    await look("2043-02-01T05:30:00Z");
    expect(await ranFor(id)).toEqual(["2043-02-01T05:00:00.000Z"]);
  });

  test.each([
    ["61 * * * *", /^Too large value '61'/],
    ["* * * *", /Invalid cron pattern/],
    ["@daily", /Invalid cron pattern/],
    ["0 0 30 2 *", /^No such day ever comes/],
  ])("%s is refused", async (cron, message) => {
    const { id } = await workflows.created(space.id);
    const { status, body } = await workflows.save(id, 1, at(cron));
    expect([status, body.errors]).toEqual([
      400,
      [{ path: "body.definition.nodes.0.parameters.cron", message: expect.stringMatching(message) }],
    ]);
  });

  test.each(["Mars/Olympus", "+02:00", ""])("the time zone “%s” is refused", async (time_zone) => {
    const { id } = await workflows.created(space.id);
    const { status, body } = await workflows.save(id, 1, at("0 5 * * *", { time_zone }));
    expect([status, (body.errors as Json[])[0]!.path]).toEqual([
      400,
      "body.definition.nodes.0.parameters.time_zone",
    ]);
  });
});

describe("no run begins, and the API says why", () => {
  test("while whoever published it may not run workflows there", async () => {
    const room = await documents.newSpace();
    const editor = await newUser();
    await setRole(room.id, editor, "EDITOR");
    const { id } = await workflows.published(room.id, at("0 5 * * *"), { key: editor.key });
    await setRole(room.id, editor, "VIEWER");
    await look("2044-01-01T05:00:00Z");
    const told = { active: false, last_error_code: "access_denied", last_error_message: expect.any(String) };
    expect(await triggerOf(id)).toMatchObject({ ...told, next_fire_at: "2044-01-02T05:00:00.000Z" });
    await setRole(room.id, editor, null);
    await look("2044-01-02T05:00:00Z");
    expect([await ranFor(id), await triggerOf(id)]).toMatchObject([[], told]);
    await setRole(room.id, editor, "EDITOR");
    expect(await triggerOf(id)).toMatchObject({ active: true, last_error_code: "access_denied" });
    await look("2044-01-03T05:00:00Z");
    expect(await ranFor(id)).toEqual(["2044-01-03T05:00:00.000Z"]);
    expect(await triggerOf(id)).toMatchObject({ active: true, last_error_code: null });
    const { ownKey: key } = api.account;
    expect((await api.ask("DELETE", `/v1/users/${editor.userId}`, { key })).status).toBe(200);
    await look("2044-01-04T05:00:00Z");
    expect([(await ranFor(id)).length, await triggerOf(id)]).toMatchObject([1, told]);
  });

  test.each(["workflow", "space"])("while its %s is in the bin", async (kind) => {
    const room = await documents.newSpace();
    const { id } = await workflows.published(room.id, at("0 5 * * *"));
    const path = kind === "space" ? `/v1/spaces/${room.id}` : `/v1/workflows/${id}`;
    expect((await api.ask("DELETE", path)).status).toBe(200);
    await look("2044-02-01T05:00:00Z");
    expect(await ranFor(id)).toEqual([]);
    expect((await api.ask("POST", `${path}/restore`)).status).toBe(200);
    expect(await triggerOf(id)).toMatchObject({ active: true, last_error_code: "workflow_deleted" });
    // What came meanwhile is not made up for.
    await look("2044-02-01T05:10:00Z");
    await look("2044-02-02T05:00:00Z");
    expect(await ranFor(id)).toEqual(["2044-02-02T05:00:00.000Z"]);
  });

  test.each([
    ["enabled = false", "workflow_disabled"],
    ["status = 'ARCHIVED'", "workflow_archived"],
  ])("while %s", async (set, code) => {
    const { pool } = database;
    const { id } = await workflows.published(space.id, at("0 5 * * *"));
    await pool.query("alter table workspace.workflows drop constraint if exists workflows_status_check");
    await pool.query(`update workspace.workflows set ${set} where id = $1`, [id]);
    await look("2044-03-01T05:00:00Z");
    const { rows } = await pool.query("select error_code from workspace.schedules where workflow_id = $1", [
      id,
    ]);
    expect([await ranFor(id), rows]).toEqual([[], [{ error_code: code }]]);
    await pool.query("update workspace.workflows set enabled = true, status = 'ACTIVE' where id = $1", [id]);
  });
});

test("starts nothing of an account that is being erased", async () => {
  const { accountId, key } = await api.newAccount();
  const room = await documents.newSpace("erased", { key });
  const { id } = await workflows.published(room.id, at("0 5 * * *"), { key });
  await look("2044-04-01T05:00:00Z");
  await inTransaction(database.pool, (tx) => beginErasure(tx, accountId));
  await look("2044-04-02T05:00:00Z");
  expect(await ranFor(id)).toEqual(["2044-04-01T05:00:00.000Z"]);
});

/** Unfinished ones of its user, as many as there may be. */
async function fill({ accountId, userId, key }: TestAccount, workflowId: unknown): Promise<void> {
  await runs.started(String(workflowId), {}, { key });
  await database.pool.query(
    `insert into workspace.runs (account_id, space_id, workflow_id, version, requested_by, requested_key_id, input)
     select account_id, space_id, workflow_id, version, requested_by, requested_key_id, input
     from workspace.runs, generate_series(1, 499) where account_id = $1 and requested_by = $2`,
    [accountId, userId],
  );
}

test("one that has no room for its run gets it when there is, within its time to catch up", async () => {
  const account = await api.newAccount();
  const { key } = account;
  const room = await documents.newSpace("full", { key });
  const { id } = await workflows.published(room.id, at("0 5 * * *"), { key });
  await fill(account, id);
  await look("2045-01-01T05:00:00Z");
  expect(await triggerOf(id, { key })).toMatchObject({
    ...{ active: true, last_error_code: "too_many_workflow_runs", next_fire_at: "2045-01-01T05:01:00.000Z" },
  });
  await database.pool.query(
    "update workspace.runs set completed_at = now(), status = 'CANCELLED' where account_id = $1",
    [account.accountId],
  );
  await look("2045-01-01T05:01:00Z");
  const found = await rowsOf(database.pool, "workspace.runs", {
    workflow_id: id,
    begun_for: "2045-01-01T05:00:00.000Z",
  });
  expect(found.length).toBe(1);
  expect(await triggerOf(id, { key })).toMatchObject({
    ...{ last_error_code: null, next_fire_at: "2045-01-02T05:00:00.000Z" },
  });
});

test("beside an account with many that are due, one's own is started in the next look", async () => {
  const { pool } = database;
  const many = await workflows.published(space.id, at("0 5 * * *", { catch_up_seconds: 604_800 }));
  await pool.query(
    `with w as (
       insert into workspace.workflows (account_id, space_id, name, draft, created_by)
       select account_id, space_id, name, draft, created_by from workspace.workflows, generate_series(1, 700)
       where id = $1 returning account_id, id, draft, created_by
     ), v as (
       insert into workspace.workflow_versions (account_id, workflow_id, version, definition, created_by)
       select account_id, id, 1, draft, created_by from w
     )
     insert into workspace.schedules (account_id, workflow_id, node_id, cron, time_zone, catch_up_seconds, next_at)
     select account_id, id, 'at', '0 5 * * *', 'UTC', 604800, '2046-01-01' from w`,
    [many.id],
  );
  await pool.query(
    `update workspace.workflows as w set current_version = 1 from workspace.workflow_versions as v
     where v.workflow_id = w.id and w.current_version is null`,
  );
  const { key } = await api.newAccount();
  const room = await documents.newSpace("few", { key });
  const { id } = await workflows.published(room.id, at("30 5 * * *"), { key });
  await pool.query("update workspace.schedules set next_at = '2046-01-02' where workflow_id = $1", [id]);
  const startDue = createScheduling(pool);
  for (let n = 0; n < 2; n++) await startDue(new Date("2046-01-02T05:30:00Z"));
  expect(await ranFor(id)).toEqual(["2046-01-02T05:30:00.000Z"]);
  await pool.query("delete from workspace.schedules");
});
