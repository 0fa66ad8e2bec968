// A run in the console: who sees its page and its workflow's name, and the log by workflow.
import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { beforeAll, describe, expect, test } from "vitest";
import type { View } from "../../src/console/screen.ts";
import { workflowNamesOf } from "../../src/console/screens/run.ts";
import { findWorkflowDeliveries, findWorkflowsOf } from "../../src/workspace/store/origins.ts";
import { enter, type Got, type Hand } from "../support/console.ts";
import { type Json, startTestApi, type TestAccount } from "../support/sealpost-api.ts";
import { enterAsStaff } from "../support/staff.ts";
import { newUser, setRole, type User } from "./membership-world.ts";
import { api, database, documents, runs, stepping, useRuns } from "./run-world.ts";
import { chain, stepAll, stepOnce } from "./support/runs.ts";

const ALL = ["webhooks:read", "analyses:read", "workflows:read"];
const NAME = "Read <tenders>";

let workflowId: string;
let spaceId: unknown;
let outsider: User;
let stranger: TestAccount;
useRuns();
beforeAll(async () => {
  ({ id: spaceId } = await documents.newSpace());
  outsider = await newUser();
  stranger = await api.newAccount();
  await documents.uploaded({ space_id: spaceId, file_name: "offer.md" }, Buffer.from("Read me."));
  workflowId = await runs.newWorkflow(spaceId, chain({ kind: "documents" }, { kind: "analyze" }));
  await api.ask("PATCH", `/v1/workflows/${workflowId}`, { body: { name: NAME } });
});

/** A run that has published. */
async function published(workflow = workflowId) {
  const { id } = await runs.started(workflow);
  await stepAll(stepping());
  return { id, deliveryId: String((await runs.get(id)).delivery_id) };
}

/** Its words, without markup. */
const words = ({ text }: Got) =>
  (/<main.*<\/main>/s.exec(text)?.[0] ?? "").replaceAll(/<[^>]*>/g, " ").replaceAll(/\s+/g, " ");

const pageOf = (hand: Hand, runId: string) => hand.get(`${hand.base}/runs/${runId}`);

describe("a run's page", () => {
  test("is seen by members of its space, by the account itself and by support staff", async () => {
    const { id, deliveryId } = await published();
    const staff = await enterAsStaff(api, { key: await api.newKey(null) });
    const base = `/console/staff/a/${api.account.accountId}`;
    for (const hand of [
      await enter(api, { key: api.account.key, permissions: ALL }),
      await enter(api, { permissions: ALL }),
      { ...staff, base },
    ]) {
      const page = await pageOf(hand, id);
      expect(page.status).toBe(200);
      expect(words(page)).toMatch(
        /Read &#60;tenders&#62; .*✓ completed .*Started .*Took .*Started by user .*Workflow version 1, all deliveries /,
      );
      expect(words(page)).toMatch(
        /✓ completed documents documents .* 1 1 .*✓ completed analyze analyze .* 1 1 /,
      );
      expect(page.text).toContain(`href="${hand.base}/deliveries/${deliveryId}"`);
      expect(page.text).toContain(`href="${hand.base}/deliveries?workflow_id=${workflowId}"`);
      const delivery = await hand.get(`${hand.base}/deliveries/${deliveryId}`);
      expect(delivery.text).toContain(
        `<a href="${hand.base}/runs/${id}"><strong>Read &#60;tenders&#62;</strong></a>`,
      );
    }
  });

  test("is for others as one of a run that does not exist", async () => {
    const { id } = await published();
    const member = await newUser();
    await setRole(spaceId, member, "VIEWER");
    const members = await enter(api, { key: member.key, permissions: ALL });
    expect((await pageOf(members, id)).status).toBe(200);
    await setRole(spaceId, member, null);
    const shown = ({ status, text }: Got) => [status, text.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "…")];
    for (const hand of [
      members,
      await enter(api, { key: outsider.key, permissions: ALL }),
      await enter(api, { key: stranger.key, permissions: ALL }),
      await enter(api, { key: stranger.ownKey, permissions: ALL }),
    ]) {
      const page = await pageOf(hand, id);
      expect(page.status).toBe(404);
      expect(shown(page)).toEqual(shown(await pageOf(hand, randomUUID())));
      expect((await pageOf(hand, "no-id")).status).toBe(404);
    }
  });

  test("needs the permission that its content needs elsewhere", async () => {
    const { id, deliveryId } = await published();
    for (const [key, lacking] of [
      [api.account.ownKey, "analyses:read"],
      [api.account.key, "workflows:read"],
    ] as const) {
      const hand = await enter(api, { key, permissions: ALL.filter((scope) => scope !== lacking) });
      expect((await pageOf(hand, id)).status).toBe(403);
      expect((await hand.get(`${hand.base}/deliveries/${deliveryId}`)).text).not.toContain(`/runs/${id}`);
    }
  });

  test("tells a run that has not begun from one that runs, and from one that was cancelled", async () => {
    const { id } = await runs.started(workflowId);
    const hand = await enter(api, { key: api.account.key, permissions: ALL });
    const shown = async () => words(await pageOf(hand, id));
    expect(await shown()).toMatch(
      /tenders&#62; ○ queued Requested .*Took – .*○ queued Begin manual trigger – – 0 0 /,
    );
    await stepOnce(stepping());
    expect(await shown()).toMatch(
      /tenders&#62; ○ running Started .* so far .*✓ completed Begin .*○ queued documents/,
    );
    await runs.cancel(id);
    expect(await shown()).toMatch(/tenders&#62; – cancelled .*– cancelled documents .*· not reached analyze/);
  });

  test("of one that goes on is its space's alone: nothing of it is published", async () => {
    const waiting = chain({ kind: "external_analysis" }, { kind: "analyze" });
    const { id } = await runs.started(await runs.newWorkflow(spaceId, waiting));
    await stepAll(stepping());
    const page = await pageOf(await enter(api, { key: api.account.key, permissions: ALL }), id);
    expect(words(page)).toMatch(
      /◐ waiting .*so far .*external analysis .*Waits for the analysis .* until .* \(in 7 d\)/,
    );
    expect(words(page)).toMatch(/· not reached analyze analyze – –/);
    expect((await pageOf(await enter(api, { permissions: ALL }), id)).status).toBe(404);
  });

  test("of one that failed says which node did and why, until that is erased", async () => {
    const { id } = await runs.started(await runs.newWorkflow(spaceId, chain({ kind: "external_analysis" })));
    await stepAll(stepping());
    await database.pool.query(
      `update workspace.node_runs set started_at = started_at - interval '8 days', next_at = now()
       where run_id = $1 and status = 'WAITING'`,
      [id],
    );
    await stepAll(stepping());
    const hand = await enter(api, { permissions: ALL });
    const why = "Nobody has published the analysis";
    const failed = words(await pageOf(hand, id));
    expect(failed).toContain(`“external_analysis” failed ${why}`);
    expect(failed).toMatch(new RegExp(`✕ failed external_analysis external analysis .* 1 0 ${why}`));
    expect((await api.ask("DELETE", `/v1/analyses/${id}`)).status).toBeLessThan(300);
    const erased = words(await pageOf(hand, id));
    expect(erased).toContain("“external_analysis” failed What went wrong was erased.");
    expect(erased).not.toContain(why);
  });
});

describe("the names of workflows", () => {
  type Deliveries = readonly { readonly id: string; readonly analysis_id: string }[];

  /** What the log shows to this reader, and with how many statements. */
  async function namesFor(userId: string | null, deliveries: Deliveries, accountId = api.account.accountId) {
    let statements = 0;
    const query = (asked: never) => {
      statements++;
      return database.pool.query(asked);
    };
    const view: Pick<View, "may" | "findWorkflows"> = {
      may: () => true,
      findWorkflows: (some) => findWorkflowsOf({ query } as unknown as Pool, { accountId, userId }, some),
    };
    return { names: await workflowNamesOf(view as View, deliveries), statements };
  }

  test("of fifty deliveries come in one statement, and those that no run published have none", async () => {
    const simple = await runs.newWorkflow(spaceId, chain());
    for (let n = 0; n < 49; n++) await runs.started(simple);
    const { id, deliveryId } = await published();
    // A pipeline's, whose id is a run's: the run has another delivery.
    const body = {
      analysis: { id: randomUUID(), status: "succeeded" },
      webhook_url: "https://hooks.example.com/",
    };
    await api.ask("POST", "/v1/analyses", { body });
    const { items } = (await api.ask("GET", "/v1/webhooks/deliveries?limit=51")).body;
    const log = items as (Json & { id: string; analysis_id: string })[];
    const { names, statements } = await namesFor(null, log);
    expect([log.length, statements, names.size]).toEqual([51, 1, 50]);
    expect(names.get(deliveryId)).toEqual({ id: workflowId, name: NAME, runId: id });
    expect(new Set([...names.values()].map((workflow) => workflow.id))).toEqual(
      new Set([workflowId, simple]),
    );
    const forged = [{ id: log[0]!.id, analysis_id: id }, ...log.slice(0, 1)];
    expect((await namesFor(null, forged)).names.size).toBe(0);
    expect((await namesFor(null, [{ id: deliveryId, analysis_id: "inv-1" }])).statements).toBe(0);
  });

  test("are told to members of the space alone, and to nobody of another account", async () => {
    const { id, deliveryId } = await published();
    const log = [{ id: deliveryId, analysis_id: id }];
    const { accountId, userId } = api.account;
    expect((await namesFor(userId, log)).names.size).toBe(1);
    expect((await namesFor(outsider.userId, log)).names.size).toBe(0);
    expect((await namesFor(null, log, stranger.accountId)).names.size).toBe(0);
    expect((await namesFor(stranger.userId, log, accountId)).names.size).toBe(0);
  });

  test("need the permission to read analyses", async () => {
    const findWorkflows = () => Promise.reject(new Error("It was asked."));
    const view: Pick<View, "may" | "findWorkflows"> = {
      may: (scope) => scope !== "analyses:read",
      findWorkflows,
    };
    expect(await workflowNamesOf(view as View, [{ id: randomUUID(), analysis_id: randomUUID() }])).toEqual(
      new Map(),
    );
  });
});

describe("the log of a workflow", () => {
  const log = async (query: string, key = api.account.ownKey) => {
    const { status, headers, body } = await api.ask("GET", `/v1/webhooks/deliveries?${query}`, { key });
    expect(status).toBe(200);
    const ids = (body.items as Json[]).map(({ id }) => id);
    return { ids, total: body.total, next: body.next_cursor, isCapped: headers.get("total-capped") };
  };

  test("has what its runs have published, the newest first, in pages and among other filters", async () => {
    const workflow = await runs.newWorkflow(spaceId, chain());
    const first = await published(workflow);
    await runs.cancel((await runs.started(workflow)).id);
    const second = await published(workflow);
    await published();
    const ofIt = `workflow_id=${workflow}`;
    expect(await log(ofIt)).toMatchObject({
      ids: [second.deliveryId, first.deliveryId],
      total: 2,
      next: null,
    });
    const page = await log(`${ofIt}&limit=1`);
    expect(page).toMatchObject({ ids: [second.deliveryId], total: 2, isCapped: null });
    expect((await log(`${ofIt}&limit=1&cursor=${page.next}`)).ids).toEqual([first.deliveryId]);
    expect((await log(`${ofIt}&status=succeeded`)).ids).toEqual([]);
    expect((await log(`${ofIt}&q=${first.id}`)).ids).toEqual([first.deliveryId]);
    expect((await log(`workflow_id=${workflowId}&q=${first.id}`)).ids).toEqual([]);
    expect((await log(`${ofIt}&q=hooks`)).ids).toEqual([]);
    expect((await log(`${ofIt}&replay_id=${randomUUID()}`)).ids).toEqual([]);
    expect((await log(`${ofIt}&analysis_id=${second.id}`)).ids).toEqual([second.deliveryId]);
    const { accountId } = api.account;
    const newest = (spaceIds: string | null, countMax: number) =>
      findWorkflowDeliveries(database.pool, { accountId, spaceIds }, workflow, countMax);
    expect(await newest(null, 1)).toEqual([second.deliveryId]);
    expect(await newest(`{${spaceId}}`, 9)).toEqual([second.deliveryId, first.deliveryId]);
    expect(await newest("{}", 9)).toEqual([]);
    const hand = await enter(api, { permissions: ALL });
    const screen = (await hand.get(`${hand.base}/deliveries?${ofIt}`)).text;
    expect([first.id, second.id].map((id) => screen.includes(`>${id}</a>`))).toEqual([true, true]);
  });

  test("is empty for whoever is no member of its space, as that of an unknown one", async () => {
    await published();
    for (const key of [outsider.key, stranger.key, stranger.ownKey]) {
      const hidden = await log(`workflow_id=${workflowId}`, key);
      expect(hidden).toEqual({ ids: [], total: 0, next: null, isCapped: null });
      expect(hidden).toEqual(await log(`workflow_id=${randomUUID()}`, key));
    }
  });
});

test("without the area there are no runs, no names and no such filter", async () => {
  const { id, deliveryId } = await published();
  const without = await startTestApi(database, { AREAS: "webhooks" });
  try {
    const key = await api.newKey(api.account.accountId);
    const hand = await enter(without, { key, permissions: ALL });
    expect((await pageOf(hand, id)).status).toBe(404);
    const delivery = await hand.get(`${hand.base}/deliveries/${deliveryId}`);
    expect(delivery.status).toBe(200);
    expect(delivery.text).not.toContain("Workflow");
    expect((await hand.get(`${hand.base}/deliveries`)).status).toBe(200);
    const filtered = await without.ask("GET", `/v1/webhooks/deliveries?workflow_id=${workflowId}`, { key });
    expect([filtered.status, filtered.body.code]).toEqual([400, "invalid_request"]);
  } finally {
    await without.close();
  }
});
