// Whoever joins and leaves what spaces, whatever is published: users see what is theirs at that moment, and no more.
import { randomUUID } from "node:crypto";
import { fc } from "@fast-check/vitest";
import { beforeAll, expect, test } from "vitest";
import { advanceReplays } from "../../src/log/replay-steps-sql.ts";
import { enter, type Hand } from "../support/console.ts";
import { publish } from "../support/installation.ts";
import type { Json } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import {
  api,
  database,
  documents,
  feedOf,
  newUser,
  type Published,
  publishOwn,
  setRole,
  told,
  type User,
} from "./membership-world.ts";
import { runs, stepping, useRuns } from "./run-world.ts";
import { chain, sequenceAll, stepAll } from "./support/runs.ts";

const RUNS = 6;
const SEED = 20261123;
const USERS = 3;
const SPACES = 2;
const RETENTION_MS = 7 * 86_400_000;
const PERMISSIONS = ["webhooks:read", "webhooks:replay", "analyses:read"];

/** `space` null: of the pipeline. */
type Known = Published & { readonly space: number | null };
type KnownReplay = { readonly id: string; readonly spaces: readonly number[] };

let users: readonly User[];
let hands: readonly Hand[];
let spaces: readonly { readonly id: string; readonly workflowId: string }[];
/** All that was published and replayed so far, by any run of the property: oldest first. */
const published: Known[] = [];
const replays: KnownReplay[] = [];
/** Of each user, the spaces. */
const members: Set<number>[] = [];

useRuns();
beforeAll(async () => {
  users = await Promise.all(Array.from({ length: USERS }, newUser));
  hands = await Promise.all(users.map(({ key }) => enter(api, { key, permissions: PERMISSIONS })));
  members.push(...users.map(() => new Set<number>()));
  spaces = await Promise.all(
    Array.from({ length: SPACES }, async (_, n) => {
      const { id } = await documents.newSpace(`space ${n}`);
      return { id: String(id), workflowId: await runs.newWorkflow(id, chain()) };
    }),
  );
});

const user = fc.nat({ max: USERS - 1 });
const space = fc.nat({ max: SPACES - 1 });
const step = fc.oneof(
  fc.record({ does: fc.constantFrom("join", "leave"), user, space }),
  fc.record({ does: fc.constant("run"), space }),
  fc.record({ does: fc.constant("publish") }),
  // By the account, or one of its users.
  fc.record({ does: fc.constant("replay"), user: fc.option(user) }),
);
type Step = { does: string; user?: number | null; space?: number };

async function take({ does, user = null, space = 0 }: Step): Promise<void> {
  switch (does) {
    case "join":
    case "leave": {
      const isMember = members[user!]!.has(space);
      if (does === "leave" && !isMember) return;
      await setRole(spaces[space]!.id, users[user!]!, does === "join" ? "VIEWER" : null);
      if (does === "join") members[user!]!.add(space);
      else members[user!]!.delete(space);
      return;
    }
    case "run": {
      const { id } = await runs.started(spaces[space]!.workflowId);
      await stepAll(stepping());
      const { delivery_id } = await runs.get(id);
      published.push({ analysisId: id, deliveryId: String(delivery_id), space });
      return;
    }
    case "publish":
      published.push({ ...(await publishOwn(randomUUID())), space: null });
      return;
    default:
      return await replayAll(user);
  }
}

async function replayAll(by: number | null): Promise<void> {
  const key = by === null ? api.account.ownKey : users[by]!.key;
  const expected = by === null ? published : seenBy(by);
  const open = expected.filter(({ deliveryId }) => !queued.has(deliveryId));
  const made = await api.ask("POST", "/v1/webhooks/replays", {
    key,
    body: { filter: { status: "abandoned" }, rate_per_second: 1_000 },
  });
  expect([made.status, made.body.matched]).toEqual([202, open.length]);
  replays.push({ id: String(made.body.id), spaces: [...new Set(open.flatMap(({ space }) => space ?? []))] });
  for (const { deliveryId } of open) queued.add(deliveryId);
  // An hour later, whatever its pace.
  await advanceReplays(database.pool, RETENTION_MS, new Date(Date.now() + 3_600_000), 10_000);
}
/** Replayed, and never sent: they stay pending. */
const queued = new Set<string>();

const isSeen = (by: number, space: number | null) => space === null || members[by]!.has(space);
const seenBy = (by: number) => published.filter(({ space }) => isSeen(by, space));
const replaysSeenBy = (by: number) =>
  replays.filter((replay) => replay.spaces.every((space) => isSeen(by, space)));

const idsOf = (items: unknown) => (items as Json[]).map(({ id }) => String(id));
const newestFirst = (known: readonly { readonly id: string }[]) => known.map(({ id }) => id).reverse();

/** All pages. */
async function listOf(path: string, key: string): Promise<{ ids: readonly string[]; totals: Set<unknown> }> {
  const ids: string[] = [];
  const totals = new Set<unknown>();
  for (let cursor = ""; ; ) {
    const { status, body } = await api.ask("GET", `${path}limit=3${cursor}`, { key });
    expect(status).toBe(200);
    ids.push(...idsOf(body.items));
    totals.add(body.total);
    if (body.next_cursor === null) return { ids, totals };
    cursor = `&cursor=${body.next_cursor}`;
  }
}

/** Everything that this user can ask for, against what is theirs now. */
async function check(by: number): Promise<void> {
  const { key } = users[by]!;
  const seen = seenBy(by);
  const ids = seen.map(({ deliveryId }) => ({ id: deliveryId }));
  const all = await listOf("/v1/webhooks/deliveries?", key);
  expect(all).toEqual({ ids: newestFirst(ids), totals: new Set([ids.length]) });
  const pending = await listOf("/v1/webhooks/deliveries?status=pending&", key);
  const waiting = ids.filter(({ id }) => queued.has(id));
  expect(pending).toEqual({ ids: newestFirst(waiting), totals: new Set([waiting.length]) });
  const abandoned = ids.filter(({ id }) => !queued.has(id));
  const attention = await listOf("/v1/webhooks/deliveries?status=failed&status=abandoned&", key);
  expect(attention).toEqual({ ids: newestFirst(abandoned), totals: new Set([abandoned.length]) });
  expect((await feedOf(key, 7)).toSorted()).toEqual(ids.map(({ id }) => id).toSorted());
  const dryRun = await api.ask("POST", "/v1/webhooks/replays", { key, body: { filter: {}, dry_run: true } });
  expect(dryRun.body).toMatchObject({ matched: abandoned.length, expired: 0 });
  const mine = replaysSeenBy(by);
  expect(await listOf("/v1/webhooks/replays?", key)).toEqual({
    ids: newestFirst(mine),
    totals: new Set([mine.length]),
  });
  await checkEach(by);
}

/** The last few, seen or not: what is not is as what does not exist. */
async function checkEach(by: number): Promise<void> {
  const { key } = users[by]!;
  const hand = hands[by]!;
  const ask = (path: string) => api.ask("GET", path, { key });
  const write = (path: string) => api.ask("POST", path, { key });
  const missing = randomUUID();
  for (const { analysisId, deliveryId, space } of published.slice(-4)) {
    const paths = (analysis: string, delivery: string) => [
      `/v1/analyses/${analysis}`,
      `/v1/webhooks/deliveries/${delivery}`,
      `/v1/webhooks/deliveries/${delivery}/body`,
    ];
    const answers = await Promise.all(paths(analysisId, deliveryId).map(ask));
    const page = await hand.get(`${hand.base}/deliveries/${deliveryId}`);
    const body = await hand.get(`${hand.base}/deliveries/${deliveryId}/body`);
    const named = await ask(`/v1/webhooks/deliveries?analysis_id=${analysisId}`);
    if (isSeen(by, space)) {
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
      expect([page.status, body.status, named.body.total]).toEqual([200, 200, 1]);
      continue;
    }
    const unknown = await Promise.all(paths(missing, missing).map(ask));
    expect(answers.map(told)).toEqual(unknown.map(told));
    expect([page.status, body.status]).toEqual([404, 404]);
    expect(told(named)).toEqual(told(await ask(`/v1/webhooks/deliveries?analysis_id=${missing}`)));
    const [replayed, none] = [deliveryId, missing].map((id) => write(`/v1/webhooks/deliveries/${id}/replay`));
    expect(told(await replayed!)).toEqual(told(await none!));
  }
  for (const { id, spaces } of replays.slice(-3)) {
    const isMine = spaces.every((space) => isSeen(by, space));
    const found = await ask(`/v1/webhooks/replays/${id}`);
    const page = await hand.get(`${hand.base}/replays/${id}`);
    expect([found.status, page.status]).toEqual(isMine ? [200, 200] : [404, 404]);
    if (isMine) continue;
    expect(told(found)).toEqual(told(await ask(`/v1/webhooks/replays/${missing}`)));
    const [cancelled, none] = [id, missing].map((one) => write(`/v1/webhooks/replays/${one}/cancel`));
    expect(told(await cancelled!)).toEqual(told(await none!));
  }
  const log =
    (await hand.get(`${hand.base}/deliveries`)).text + (await hand.get(`${hand.base}/replays`)).text;
  const hidden = [
    ...published.filter(({ space }) => !isSeen(by, space)).flatMap((one) => [one.analysisId, one.deliveryId]),
    ...replays.filter((one) => !replaysSeenBy(by).includes(one)).map(({ id }) => id),
  ];
  expect(hidden.filter((id) => log.includes(id))).toEqual([]);
}

test(
  `whoever joins and leaves, users see what is theirs at that moment, and no more: ${RUNS} histories, seed ${SEED}`,
  async () => {
    const property = fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 12 }), async (history) => {
      for (const one of history) await take(one);
      await sequenceAll(database.pool);
      for (const by of users.keys()) await check(by);
      // All of it is the account's.
      const { key } = { key: api.account.ownKey };
      expect((await listOf("/v1/webhooks/deliveries?", key)).ids).toHaveLength(published.length);
      expect(await feedOf(key, 50)).toHaveLength(published.length);
    });
    // What was published stays, so histories cannot be shortened.
    await fc.assert(property, { numRuns: RUNS, seed: SEED, endOnFailure: true });
    expect(published.filter(({ space }) => space !== null).length).toBeGreaterThan(3);
    expect(replays.length).toBeGreaterThan(3);
  },
  patience(240_000),
);

test("a reader of the feed comes to what is theirs, however much of others' there is before it", async () => {
  const { accountId, key } = await api.newAccount();
  const others = 10_500;
  await database.pool.query(
    `with others as (
       insert into sealpost.deliveries (id, account_id, event, status, analysis_id, space_id)
       select sealpost.uuid_v7(), $1, 'analysis.succeeded', 'succeeded', 'of-others-' || n, sealpost.uuid_v7()
       from generate_series(1, $2::integer) as n
       returning id
     )
     insert into sealpost.feed (account_id, position, delivery_id)
     select $1, (extract(epoch from now()) * 1000000)::bigint - 3600000000 + row_number() over (), id from others`,
    [accountId, others],
  );
  expect(await feedOf(key)).toEqual([]);
  const mine = await publish(database.pool, accountId, '{"id":"mine","status":"succeeded"}');
  await sequenceAll(database.pool);
  expect(await feedOf(key)).toEqual([mine]);
  expect((await api.ask("GET", "/v1/webhooks/deliveries", { key })).body).toMatchObject({ total: 1 });
});
