// A run's own webhook_url belongs to whoever started it: what happens to webhooks on their way there, and to replays,
// when that is no member any more.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { pauseEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { recordOutcomes } from "../../src/delivery/record-sql.ts";
import { decideBeforeAttempt } from "../../src/delivery/schedule/life.ts";
import { attemptOf, claim, claimOne, openDispatchPool, openRow } from "../support/delivery-rows.ts";
import { countRows, publish } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { takeWakeups } from "../support/wakeup-jobs.ts";
import { api, database, documents, newUser, runIn, setRole, type User } from "./membership-world.ts";
import { runs, stepping, useRuns } from "./run-world.ts";
import { binOf, deleteAllGone } from "./support/bin.ts";
import { chain, stepAll } from "./support/runs.ts";

const THEIRS = "https://hooks.example.com/theirs";
const OURS = "https://hooks.example.com/ours";

useRuns();
let dispatch: ReturnType<typeof openDispatchPool>;
let spaceId: unknown;
beforeAll(async () => {
  dispatch = openDispatchPool(database);
  spaceId = (await documents.newSpace("Closed")).id;
});
afterAll(() => dispatch.end());
beforeEach(async () => {
  await setEndpoint();
});

const setEndpoint = () => api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: OURS } });
const accountId = () => api.account.accountId;

/** The webhook of an EDITOR's run that has ended. */
async function theirs(): Promise<{
  readonly id: string;
  readonly user: User;
  readonly runId: string;
  readonly workflow: string;
}> {
  const user = await newUser();
  await setRole(spaceId, user, "EDITOR");
  const workflow = await runs.newWorkflow(spaceId, chain());
  const run = await runs.started(workflow, { webhook_url: THEIRS }, { key: user.key });
  await stepAll(stepping());
  await takeWakeups(database.pool);
  return { id: String((await runs.get(run.id)).delivery_id), user, runId: run.id, workflow };
}

/** The workflow, and with it its runs. */
async function deleteForGood(workflow: string): Promise<void> {
  await binOf(api.ask).removeForGood({ path: `/v1/workflows/${workflow}` });
  await deleteAllGone(database.pool);
}

/** Nobody attempts it any more, unless it is replayed. */
async function abandon(id: string): Promise<void> {
  await database.pool.query("delete from sealpost.open_deliveries where delivery_id = $1", [id]);
  await database.pool.query(
    "update sealpost.deliveries set status = 'abandoned', reason = 'attempts_exhausted' where id = $1",
    [id],
  );
}

async function replay(id: string): Promise<void> {
  expect((await api.ask("POST", `/v1/webhooks/deliveries/${id}/replay`)).status).toBe(202);
  await takeWakeups(database.pool);
}

/** Claimed until it is leased, as a dispatcher does that is woken. */
async function urlsOf(id: string) {
  const { deliveries } = await claim(dispatch, [id]);
  if (deliveries.length > 0) throw new Error("It was leased at once.");
  expect((await takeWakeups(database.pool)).ids).toEqual([id]);
  const { webhookUrl, endpointUrl, lane } = await claimOne(dispatch, id);
  expect(lane).toBe(await endpointLane());
  return [webhookUrl, endpointUrl];
}
async function endpointLane(): Promise<string> {
  const { rows } = await database.pool.query("select sealpost.lane($1, null)::text as lane", [accountId()]);
  return rows[0].lane;
}
const revoke = ({ userId }: User) =>
  database.pool.query("update sealpost.api_keys set revoked_at = now() where user_id = $1", [userId]);

describe("a webhook on its way to a run's own URL", () => {
  test.each([
    ["is removed", (user: User) => setRole(spaceId, user, null)],
    ["becomes a VIEWER", (user: User) => setRole(spaceId, user, "VIEWER")],
    ["has the key revoked", revoke],
  ])("goes to the endpoint once whoever started the run %s", async (_, end) => {
    const { id, user } = await theirs();
    await end(user);
    expect(await urlsOf(id)).toEqual([null, OURS]);
    const { body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`);
    expect(body).toMatchObject({ status: "pending", target_url: null });
  });

  test.each(["EDITOR", "ADMIN"])("goes there as long as that may run workflows: %s", async (role) => {
    const { id, user } = await theirs();
    await setRole(spaceId, user, role);
    expect((await claimOne(dispatch, id)).webhookUrl).toBe(THEIRS);
  });

  test("goes to the endpoint after an attempt that was cut, in the attempt's run", async () => {
    const { id, user } = await theirs();
    expect((await claimOne(dispatch, id, { leaseMs: 0 })).webhookUrl).toBe(THEIRS);
    await setRole(spaceId, user, null);
    expect(await urlsOf(id)).toEqual([null, OURS]);
    const { body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`);
    expect((body.attempts as Json[]).map(({ target_url }) => target_url)).toEqual([THEIRS]);
  });

  test("goes to the endpoint when it is replayed", async () => {
    const { id, user } = await theirs();
    await abandon(id);
    await setRole(spaceId, user, null);
    await replay(id);
    expect(await urlsOf(id)).toEqual([null, OURS]);
  });

  // Nobody can be asked any more whose URL it was.
  test.each(["has an attempt to come", "is attempted at that moment", "is replayed"])(
    "goes to the endpoint once its run is deleted for good, when it %s",
    async (when) => {
      const { id, user, runId, workflow } = await theirs();
      const lease = when.startsWith("is attempted") ? await claimOne(dispatch, id) : null;
      if (when === "is replayed") await abandon(id);
      await deleteForGood(workflow);
      expect((await runs.get(runId)).code).toBe("not_found");
      await setRole(spaceId, user, null);
      if (lease !== null) {
        const next = { status: "failed", dueAtMs: 0 } as const;
        expect(await recordOutcomes(dispatch, [attemptOf(lease, next, { targetUrl: THEIRS })])).toContain(id);
      }
      if (when === "is replayed") await replay(id);
      const lane = await endpointLane();
      expect(await claimOne(dispatch, id)).toMatchObject({ webhookUrl: null, endpointUrl: OURS, lane });
      const { body } = await api.ask("GET", `/v1/webhooks/deliveries/${id}`);
      expect(body).toMatchObject({ target_url: lease && THEIRS });
    },
  );

  test.each(["the member is removed", "the key is revoked", "the run is deleted for good"])(
    "uses up none of its window where it waited for consent until %s",
    async (what) => {
      const { id, user, workflow } = await theirs();
      const lease = await claimOne(dispatch, id);
      await recordOutcomes(dispatch, [attemptOf(lease, { status: "waits" }, null)]);
      await database.pool.query(
        `update sealpost.open_deliveries set run_started_at = run_started_at - interval '2 days',
           due_at = due_at - interval '2 days' where delivery_id = $1`,
        [id],
      );
      if (what.startsWith("the member")) await setRole(spaceId, user, null);
      else if (what.startsWith("the key")) await revoke(user);
      else await deleteForGood(workflow);
      const [atOnce] = (await claim(dispatch, [id])).deliveries;
      const at = atOnce?.kind === "leased" ? atOnce : await claimOne(dispatch, id);
      expect([at.webhookUrl, at.endpointUrl, at.number]).toEqual([null, OURS, 1]);
      const found = {
        ...at,
        attemptsInRun: 0,
        isErased: false,
        expiresAtMs: Infinity,
        target: "allowed",
      } as const;
      const policy = { windowMs: 86_400_000, attempts: 8 };
      expect(decideBeforeAttempt(found, policy, Date.now())).toEqual({ kind: "post" });
      await takeWakeups(database.pool);
    },
  );

  test("goes on in its window once its run is deleted for good, where it waits for its retry only", async () => {
    const { id, workflow } = await theirs();
    const next = { status: "failed", dueAtMs: Date.now() + 600_000 } as const;
    await recordOutcomes(dispatch, [attemptOf(await claimOne(dispatch, id), next, { targetUrl: THEIRS })]);
    const before = await openRow(database.pool, id);
    await deleteForGood(workflow);
    expect(before?.run_started_at).toBeInstanceOf(Date);
    expect(await openRow(database.pool, id)).toEqual(before);
  });

  test("of a run deleted for good is what the endpoint's options say, but for what was delivered", async () => {
    const [there, here, erased] = [await theirs(), await theirs(), await theirs()];
    await database.pool.query("delete from sealpost.open_deliveries where delivery_id = $1", [there.id]);
    await database.pool.query("update sealpost.deliveries set status = 'succeeded' where id = $1", [
      there.id,
    ]);
    await api.ask("DELETE", `/v1/analyses/${erased.runId}`);
    const set = (body: object) => api.ask("PUT", "/v1/webhooks/endpoint", { body: { url: OURS, ...body } });
    await set({ forget_after_success: true });
    for (const { workflow } of [there, here, erased]) await deleteForGood(workflow);
    const referred = await theirs();
    await set({ forget_after_success: false, payload: "reference" });
    await deleteForGood(referred.workflow);
    await set({ payload: "full" });
    const { bytes } = await api.ask("GET", `/v1/webhooks/deliveries/${referred.id}/body`);
    const url = `/v1/analyses/${referred.runId}`;
    expect(JSON.parse(bytes.toString()).data).toEqual({ id: referred.runId, status: "succeeded", url });
    const forgotten = ({ id }: { readonly id: string }) =>
      countRows(database.pool, "forgetting", { delivery_id: id });
    expect(await Promise.all([there, here, erased].map(forgotten))).toEqual([0, 1, 0]);
    const urlOf = async ({ id }: { readonly id: string }) =>
      (await api.ask("GET", `/v1/webhooks/deliveries/${id}`)).body.target_url;
    expect(await urlOf(there)).toBe(THEIRS);
    const body = await api.ask("GET", `/v1/webhooks/deliveries/${erased.id}/body`);
    expect(body.body.code).toBe("analysis_erased");
  });

  test("is held where the endpoint is paused, and goes nowhere where there is none", async () => {
    const [held, lost] = [await theirs(), await theirs()];
    for (const { user } of [held, lost]) await setRole(spaceId, user, null);
    await pauseEndpoint(database.pool, accountId());
    for (let claims = 0; claims < 2; claims++)
      expect((await claim(dispatch, [held.id])).deliveries).toEqual([]);
    expect(await countRows(database.pool, "held_deliveries", { delivery_id: held.id })).toBe(1);
    expect((await api.ask("DELETE", "/v1/webhooks/endpoint")).status).toBeLessThan(300);
    await takeWakeups(database.pool);
    expect(await urlsOf(lost.id)).toEqual([null, null]);
  });

  test("which others than runs publish, goes where it was published to", async () => {
    const { user } = await theirs();
    await setRole(spaceId, user, null);
    const body = { analysis: { id: "elsewhere", status: "succeeded" }, webhook_url: THEIRS };
    const { body: made } = await api.ask("POST", "/v1/analyses", { key: user.key, body });
    expect((await claimOne(dispatch, String(made.delivery_id))).webhookUrl).toBe(THEIRS);
  });
});

test("whoever is removed from a space has no bulk replay of it going on; others go on", async () => {
  await api.ask("DELETE", "/v1/webhooks/endpoint");
  const [user, other] = [await newUser(), await newUser()];
  for (const one of [user, other]) await setRole(spaceId, one, "VIEWER");
  const { analysisId } = await runIn(spaceId, "replayed.txt");
  await publish(database.pool, accountId(), '{"id":"own","status":"succeeded"}');
  const replay = async (key: string, analysis_id: string) => {
    const filter = { analysis_id };
    const made = await api.ask("POST", "/v1/webhooks/replays", { key, body: { filter } });
    expect(made.body).toMatchObject({ status: "running", matched: 1 });
    return made.body.id;
  };
  const stopped = await replay(user.key, analysisId);
  const going = [
    await replay(user.key, "own"),
    await replay(other.key, analysisId),
    await replay(api.account.ownKey, analysisId),
  ];
  await setRole(spaceId, user, null);
  const statusOf = async (id: unknown) => (await api.ask("GET", `/v1/webhooks/replays/${id}`)).body.status;
  expect(await statusOf(stopped)).toBe("cancelled");
  expect(await countRows(database.pool, "replay_items", { replay_id: String(stopped) })).toBe(0);
  for (const id of going) expect(await statusOf(id)).toBe("running");
});
