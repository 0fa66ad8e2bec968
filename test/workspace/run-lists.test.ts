// Lists of runs: what fits the filters, of what whoever asks may see, newest first.
import { randomUUID } from "node:crypto";
import { fc } from "@fast-check/vitest";
import { beforeAll, describe, expect, test } from "vitest";
import { RUN_STATUSES, type RunStatus } from "../../src/workspace/model/workflows.ts";
import type { Asked, AskOptions, Json } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import type { User } from "./membership-world.ts";
import { api, database, documents, runs, stepping, useRuns } from "./run-world.ts";
import { binOf } from "./support/bin.ts";
import { documentsOf } from "./support/documents.ts";
import { chain, runsOf, stepAll } from "./support/runs.ts";

useRuns();
const bin = binOf((...asked) => api.ask(...asked));

const listAll = (query: string, key?: string): Promise<Asked> =>
  api.ask("GET", `/v1/workflow-runs${query}`, key === undefined ? {} : { key });
const idsOf = ({ body }: Asked) => (body.items as Json[]).map(({ id }) => String(id));

describe("a run in a list", () => {
  test("is told as by its id, without its input, its definition and its nodes", async () => {
    const { id: space_id } = await documents.newSpace();
    const wait = { kind: "wait", parameters: { for_seconds: 3_600 } } as const;
    const workflow = await runs.newWorkflow(space_id, chain(wait));
    const { id } = await runs.started(workflow, { input: { note: "secret" } });
    const path = `/v1/workflows/${workflow}/runs`;
    for (const status of ["QUEUED", "WAITING", "CANCELLED"]) {
      if (status === "CANCELLED") await runs.cancel(id);
      const { input: _, definition: __, node_runs: ___, trigger_node_id: ____, ...run } = await runs.get(id);
      expect(run).toMatchObject({ status, activations_total: status === "QUEUED" ? 1 : 2 });
      expect(run.wake_at === null).toBe(status !== "WAITING");
      const page = { items: [run], next_cursor: null, total: 1 };
      expect((await api.ask("GET", path)).body).toEqual(page);
      expect((await listAll(`?space_id=${space_id}`)).body).toEqual(page);
      if (status === "QUEUED") await stepAll(stepping());
    }
  });

  test("is of the moment that it tells", async () => {
    const { id: space_id } = await documents.newSpace();
    const { id, created_at } = await runs.started(await runs.newWorkflow(space_id, chain()));
    const count = async (filter: string) =>
      (await listAll(`?space_id=${space_id}&${filter}`)).body.total as number;
    const later = new Date(Date.parse(String(created_at)) + 1).toISOString();
    expect(await count(`created_after=${created_at}`)).toBe(1);
    expect(await count(`created_after=${later}`)).toBe(0);
    expect(await count(`created_before=${later}`)).toBe(1);
    expect(await count(`created_before=${created_at}`)).toBe(0);
    for (const moment of ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"]) {
      expect((await listAll(`?created_after=${moment}`)).status).toBe(200);
      expect((await listAll(`?created_before=${moment}`)).status).toBe(200);
    }
    await runs.cancel(id);
  });
});

describe("of many", () => {
  type Row = { id: string; space: number; workflow: number; status: RunStatus; createdMs: number };
  const ROWS = 400;
  const FIRST_MS = Date.UTC(2026, 0, 1);
  const SPAN_MS = 20;
  /** The last is in the bin. Each has two workflows, the second of which is never empty. */
  const SPACES = 4;
  const rows: Row[] = [];
  const spaces: string[] = [];
  const workflows: string[] = [];
  let people: readonly { readonly user: User; readonly seen: readonly number[] }[];

  beforeAll(async () => {
    const account = await api.newAccount();
    const ask = (method: string, path: string, options: AskOptions = {}) =>
      api.ask(method, path, { key: account.key, ...options });
    const [own, files] = [runsOf(ask), documentsOf(ask)];
    const [member, outsider] = [await api.newUser(account.accountId), await api.newUser(account.accountId)];
    for (let space = 0; space < SPACES; space++) {
      const { id } = await files.newSpace(`${space}`);
      spaces.push(String(id));
      for (let n = 0; n < 2; n++) workflows.push(await own.newWorkflow(id, chain()));
      if (space % 2 === 0 || space === SPACES - 1) {
        await ask("PUT", `/v1/spaces/${id}/members/${member.userId}`, { body: { role: "VIEWER" } });
      }
    }
    const random = fc.sample(
      fc.record({
        space: fc.nat(SPACES - 1),
        second: fc.nat(4),
        status: fc.constantFrom(...RUN_STATUSES),
        atMs: fc.nat(SPAN_MS),
      }),
      { numRuns: ROWS, seed: 20261129 },
    );
    const { accountId, userId } = account;
    const made = random.map(({ space, second, status, atMs }) => {
      const [workflow, createdMs] = [2 * space + Math.min(second, 1), FIRST_MS + atMs];
      return { space, workflow, status, createdMs };
    });
    const { rows: inserted } = await database.pool.query<{ id: string; n: number }>(
      `with given as materialized (
         select n, sealpost.uuid_v7(at) as id, at, space_id, workflow_id, status
         from unnest($3::timestamptz[], $4::uuid[], $5::uuid[], $6::text[])
           with ordinality as given (at, space_id, workflow_id, status, n)
       ), made as (
         insert into workspace.runs (account_id, requested_by, requested_key_id, id, space_id, workflow_id, version,
           input, status, created_at, completed_at)
         select $1, $2, gen_random_uuid(), id, space_id, workflow_id, 1, '{}', status, at,
           case when status in ('SUCCEEDED', 'FAILED', 'CANCELLED') then now() end
         from given
       )
       select id, n::integer from given`,
      [
        ...[accountId, userId, made.map(({ createdMs }) => new Date(createdMs))],
        ...[made.map(({ space }) => spaces[space]), made.map(({ workflow }) => workflows[workflow])],
        made.map(({ status }) => status),
      ],
    );
    for (const { id, n } of inserted) rows.push({ id, ...made[n - 1]! });
    rows.sort((one, other) => (one.id < other.id ? 1 : -1));
    await ask("DELETE", `/v1/spaces/${spaces.at(-1)}`);
    people = [
      { user: account, seen: [0, 1, 2] },
      { user: member, seen: [0, 2] },
      { user: outsider, seen: [] },
    ];
  });

  const moments = fc.integer({ min: -1, max: SPAN_MS + 1 }).map((ms) => FIRST_MS + ms);
  /** Each is asked for now and then: all at once, nothing would fit. */
  const atTimes = <Value>(value: fc.Arbitrary<Value>) =>
    fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: value });
  const filters = fc.record({
    status: atTimes(fc.uniqueArray(fc.constantFrom(...RUN_STATUSES), { minLength: 1, maxLength: 4 })),
    space: atTimes(fc.nat(SPACES - 1)),
    workflow: atTimes(fc.nat(2 * SPACES - 1)),
    after: atTimes(moments),
    before: atTimes(moments),
  });

  test(
    "those that fit are there, each once, and nothing else, on pages of whatever size",
    async () => {
      let [pages, unseen] = [0, 0];
      const property = fc.asyncProperty(
        filters,
        fc.nat(2),
        fc.constantFrom(3, 5, 20, 100),
        async (...asked) => {
          const [{ status, space, workflow, after, before }, who, limit] = asked;
          const { user, seen } = people[who]!;
          const query = new URLSearchParams({ limit: `${limit}` });
          for (const one of status ?? []) query.append("status", one);
          if (space !== undefined) query.append("space_id", spaces[space]!);
          if (after !== undefined) query.append("created_after", new Date(after).toISOString());
          if (before !== undefined) query.append("created_before", new Date(before).toISOString());
          // One workflow's have an address of their own, which knows no spaces.
          const isOwn = workflow !== undefined && space === undefined && limit > 3;
          if (workflow !== undefined && !isOwn) query.append("workflow_id", workflows[workflow]!);
          const path = isOwn ? `/v1/workflows/${workflows[workflow]}/runs` : "/v1/workflow-runs";
          const isSeen = [space, workflow === undefined ? undefined : workflow >> 1].every(
            (one) => one === undefined || seen.includes(one),
          );
          const fitting = rows.filter(
            (row) =>
              seen.includes(row.space) &&
              (status === undefined || status.includes(row.status)) &&
              row.space === (space ?? row.space) &&
              row.workflow === (workflow ?? row.workflow) &&
              row.createdMs >= (after ?? 0) &&
              row.createdMs < (before ?? Number.POSITIVE_INFINITY),
          );
          const found: string[] = [];
          for (;;) {
            const answer = await api.ask("GET", `${path}?${query}`, { key: user.key });
            if (!isSeen) {
              unseen++;
              expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
              return;
            }
            expect([answer.status, answer.body.total]).toEqual([200, fitting.length]);
            pages++;
            found.push(...idsOf(answer));
            if (answer.body.next_cursor === null) break;
            expect(idsOf(answer)).toHaveLength(limit);
            query.set("cursor", String(answer.body.next_cursor));
          }
          expect(found).toEqual(fitting.map(({ id }) => id));
        },
      );
      await fc.assert(property, { numRuns: 60, seed: 20261129 });
      expect([pages > 100, unseen > 6], `${pages} pages, ${unseen} unseen`).toEqual([true, true]);
    },
    patience(60_000),
  );

  test("a cursor is of one user's filters", async () => {
    const [owner, member] = people.map(({ user }) => user.key);
    const { next_cursor } = (await listAll("?limit=1", owner)).body;
    for (const [query, key] of [
      ["?status=FAILED", owner],
      ["", member],
      [`?space_id=${spaces[0]}`, owner],
    ] as const) {
      const joined = `${query === "" ? "?" : `${query}&`}cursor=${next_cursor}`;
      expect((await listAll(joined, key)).body.errors).toEqual([
        { path: "query.cursor", message: expect.stringContaining("other filters") },
      ]);
    }
  });
});

test("what does not exist, or is not a filter, is told so", async () => {
  for (const query of [`?space_id=${randomUUID()}`, `?workflow_id=${randomUUID()}`]) {
    expect((await listAll(query)).status).toBe(404);
  }
  expect((await api.ask("GET", `/v1/workflows/${randomUUID()}/runs`)).status).toBe(404);
  for (const query of [
    "?status=DONE",
    "?status=",
    "?created_after=yesterday",
    "?workflow_id=one",
    "?input=1",
  ]) {
    expect((await listAll(query)).status, query).toBe(400);
  }
});

test("runs of a workflow that is in the bin are listed with the others, and not as its own", async () => {
  const { id: space_id } = await documents.newSpace();
  const workflow = await runs.newWorkflow(space_id, chain());
  const { id } = await runs.started(workflow);
  await bin.remove({ path: `/v1/workflows/${workflow}` });
  expect(idsOf(await listAll(`?space_id=${space_id}`))).toEqual([id]);
  expect((await listAll(`?workflow_id=${workflow}`)).status).toBe(404);
  expect((await api.ask("GET", `/v1/workflows/${workflow}/runs`)).status).toBe(404);
  await runs.cancel(id);
});

test("of more than 10,000 the total is a lower bound", async () => {
  const { id: space_id } = await documents.newSpace();
  const workflow = await runs.newWorkflow(space_id, chain());
  const { id } = await runs.started(workflow);
  await runs.cancel(id);
  const { rowCount } = await database.pool.query(
    `insert into workspace.runs (account_id, space_id, workflow_id, version, input, requested_by, requested_key_id,
       status, completed_at)
     select account_id, space_id, workflow_id, version, input, requested_by, requested_key_id, status, completed_at
     from workspace.runs, generate_series(1, 10000) where id = $1`,
    [id],
  );
  expect(rowCount).toBe(10_000);
  for (const path of [`/v1/workflows/${workflow}/runs?`, `/v1/workflow-runs?space_id=${space_id}&`]) {
    const { body, headers } = await api.ask("GET", `${path}limit=1`);
    expect([body.total, headers.get("total-capped")]).toEqual([10_000, "true"]);
    const few = await api.ask("GET", `${path}limit=1&status=FAILED`);
    expect([few.body.total, few.headers.get("total-capped")]).toEqual([0, null]);
  }
});
