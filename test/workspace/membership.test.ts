// What runs publish is read by whoever may read their space now: walked through every operation, screen and export.
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { screens } from "../../src/console/screens.ts";
import type { Operation } from "../../src/http/operation.ts";
import { enter, type Got, type Hand } from "../support/console.ts";
import type { Asked, AskOptions, Json, TestApi } from "../support/sealpost-api.ts";
import { declaredOperations } from "../support/sealpost-operations.ts";
import { workspaceTests } from "./area-tests.ts";
import {
  api,
  database,
  documents,
  feedOf,
  newUser,
  type Published,
  publishOwn,
  runIn,
  setRole,
  told,
  type User,
} from "./membership-world.ts";
import { useRuns } from "./run-world.ts";
import { sequenceAll } from "./support/runs.ts";

/** Of the document that the run has read, in its analysis. */
const FILE_NAME = "canary-4711.txt";
const PERMISSIONS = ["webhooks:read", "webhooks:replay", "analyses:read", "workflows:read"];

let spaceId: string;
let member: User;
/** Of the account, and of no space. */
let outsider: User;
let own: Published;
let secret: Published;
/** A bulk replay of both. */
let replayId: string;
let cancelled: string;

useRuns();
beforeAll(async () => {
  spaceId = String((await documents.newSpace("Canaries")).id);
  [member, outsider] = [await newUser(), await newUser()];
  await setRole(spaceId, member, "EDITOR");
  own = await publishOwn("own-one");
  secret = await runIn(spaceId, FILE_NAME);
  replayId = await replayAll();
  cancelled = await replayAll({ note: "canary" });
  await api.ask("POST", `/v1/webhooks/replays/${cancelled}/cancel`);
});

/** By the account. Nothing carries it out. */
async function replayAll(more: object = {}): Promise<string> {
  const made = await api.ask("POST", "/v1/webhooks/replays", { body: { filter: {}, ...more } });
  expect([made.status, made.body.matched]).toEqual([202, 2]);
  return String(made.body.id);
}

/** What shows that somebody was told of the run. */
const canaries = () => [secret.analysisId, secret.deliveryId, replayId, cancelled, FILE_NAME, spaceId];

function expectNothingTold(text: string, what: string): void {
  expect(
    canaries().filter((canary) => text.includes(canary)),
    what,
  ).toEqual([]);
}

const hiddenIds = (): Record<string, string> => ({
  analysis_id: secret.analysisId,
  delivery_id: secret.deliveryId,
  replay_id: replayId,
  run_id: secret.analysisId,
  space_id: spaceId,
});
const unknownIds = (): Record<string, string> =>
  Object.fromEntries(Object.keys(hiddenIds()).map((name) => [name, randomUUID()]));

const operations = declaredOperations().filter(({ isAcrossAccounts }) => !isAcrossAccounts);
/** Of what takes one. A new operation needs one here, or its request is refused as invalid. */
const bodies: Readonly<Record<string, unknown>> = {
  "analyses.publish": { analysis: { id: "theirs", status: "succeeded" } },
  "webhooks.replays.create": { filter: {}, dry_run: true },
  "webhooks.endpoint.set": { url: "https://hooks.example.com/" },
  "api_keys.create": { name: "theirs", scopes: ["analyses:read"] },
  "console.links.create": { viewer: { id: "u-1", label: "Sam" } },
  ...workspaceTests.bodies,
};
/** They would end what the others need, and tell of nothing published. */
const ENDING = ["webhooks.endpoint.set", "webhooks.signing_secret.rotate", "api_keys.revoke"];
const QUERIES: Readonly<Record<string, string>> = {
  "documents.list": "?space_id=",
  "pages.list": "?space_id=",
  "workflows.list": "?space_id=",
};

function send(operation: Operation, ids: Readonly<Record<string, string>>, { key }: User): Promise<Asked> {
  const { method } = operation;
  const path = operation.path.replace(
    /\{(\w+)\}/g,
    (_, name) => ids[name] ?? "0199a1f0-7d2c-7c3a-9b1e-000000000000",
  );
  const query = QUERIES[operation.key] === undefined ? "" : `${QUERIES[operation.key]}${ids.space_id}`;
  const isFile = operation.body?.kind === "stream";
  const sent = isFile ? { content: Buffer.from("theirs") } : { body: bodies[operation.key] };
  return api.ask(method, path + query, { key, ...sent });
}

describe("an operation tells a user who is no member nothing of what the space's run published", () => {
  test.each(operations.filter(({ key }) => !ENDING.includes(key)))("$key", async (operation) => {
    const hidden = await send(operation, hiddenIds(), outsider);
    if (operation.isOfAccount) {
      expect([hidden.status, hidden.body.code]).toEqual([403, "access_denied"]);
      return;
    }
    // A request that says nothing would show nothing.
    expect(hidden.status, hidden.bytes.toString()).not.toBe(400);
    expectNothingTold(hidden.bytes.toString() + JSON.stringify([...hidden.headers]), operation.key);
    const isNamed = operation.path.includes("{") || operation.key in QUERIES;
    if (!isNamed) return;
    expect(hidden.status).toBe(404);
    expect(told(hidden)).toEqual(told(await send(operation, unknownIds(), outsider)));
  });

  test.each(operations.filter(({ isOfAccount }) => isOfAccount))(
    "nor counts for it what is of the whole account: $key",
    async (operation) => {
      // The account itself is told.
      const { status } = await send(operation, unknownIds(), { userId: "", key: api.account.ownKey });
      expect([200, 400, 404, 409]).toContain(status);
    },
  );

  test("those who are members are told, and so are the account's own keys", async () => {
    for (const key of [member.key, api.account.ownKey]) {
      const analysis = await api.ask("GET", `/v1/analyses/${secret.analysisId}`, { key });
      expect(analysis.bytes.toString()).toContain(FILE_NAME);
      const log = await api.ask("GET", "/v1/webhooks/deliveries", { key });
      const ids = (log.body.items as Json[]).map(({ id }) => id);
      expect(ids).toEqual(expect.arrayContaining([secret.deliveryId, own.deliveryId]));
      expect(await feedOf(key)).toEqual(expect.arrayContaining([own.deliveryId, secret.deliveryId]));
      expect((await api.ask("GET", `/v1/webhooks/replays/${replayId}`, { key })).status).toBe(200);
    }
  });

  test("and it is in no total, and in no place of the feed", async () => {
    const ask = async (path: string) => (await api.ask("GET", path, { key: outsider.key })).body;
    const log = await ask("/v1/webhooks/deliveries?created_before=2999-01-01T00:00:00Z");
    expect(log.total).toBe((log.items as Json[]).length);
    expect((log.items as Json[]).map(({ id }) => id)).toContain(own.deliveryId);
    expect(await ask(`/v1/webhooks/deliveries?analysis_id=${secret.analysisId}`)).toMatchObject({ total: 0 });
    expect(await ask(`/v1/webhooks/deliveries?replay_id=${replayId}`)).toMatchObject({ total: 0 });
    expect(await ask("/v1/webhooks/replays")).toEqual({ items: [], next_cursor: null, total: 0 });
    const feed = await feedOf(outsider.key, 1);
    expect(feed).toContain(own.deliveryId);
    expect(feed).not.toContain(secret.deliveryId);
  });
});

describe("a screen of the console, opened with a key of a user who is no member,", () => {
  let hand: Hand;
  beforeAll(async () => {
    hand = await enter(api, { key: outsider.key, permissions: PERMISSIONS });
  });

  /** Without what is new each time. */
  const shown = ({ status, text }: Got) => ({
    status,
    text: text.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "…").replaceAll(/Request <code>[^<]*/g, "…"),
  });
  const ask = (method: string, path: string): Promise<Got> =>
    method === "GET"
      ? hand.get(hand.base + path)
      : hand.post(hand.base + path, { _key: randomUUID(), matched: "1" });

  // Leaving comes last.
  const OTHERS = ["/leave", "/endpoint/check", "/endpoint/remove"];
  const walked = screens.filter(({ path }) => !OTHERS.includes(path));
  test.each(walked)("tells nothing: $method $path", async ({ method, path }) => {
    const fill = (ids: Record<string, string>) => path.replace(/\{(\w+)\}/g, (_, name) => ids[name]!);
    const got = await ask(method, fill(hiddenIds()));
    expect(got.status).toBeLessThan(500);
    if (!path.includes("{")) return expectNothingTold(got.text, path);
    // 403 is what is of the account, and keys for who may not make any.
    expect(got.status).toBe(/^\/(?:endpoint|keys)\//.test(path) ? 403 : 404);
    expect(shown(got)).toEqual(shown(await ask(method, fill(unknownIds()))));
  });

  test.each([
    "/deliveries?status=pending&status=failed&status=abandoned",
    "/replays/new?status=abandoned",
    "/audit",
  ])("tells nothing with filters: %s", async (path) => {
    const got = await ask("GET", path);
    expectNothingTold(got.text, path);
  });

  test("counts nothing of the account, and offers no changes", async () => {
    const { text } = await ask("GET", "/deliveries");
    expect(text).not.toContain('aria-label="Attempts"');
    expect(text).not.toContain(">Changes<");
    expect(text).toContain(own.analysisId);
    expect((await ask("GET", "/audit")).status).toBe(403);
  });

  test.each(["/console/staff", "/console/staff/audit", "/console/staff/audit.csv"])(
    "opens nothing of staff's: %s",
    async (path) => {
      const got = await hand.get(path);
      expect(got.status).toBe(401);
      expectNothingTold(got.text, path);
    },
  );

  test("shares a refresh with nobody who sees more", async () => {
    const [account, hers] = await Promise.all([
      enter(api, { permissions: PERMISSIONS }),
      enter(api, { key: member.key, permissions: PERMISSIONS }),
    ]);
    const all = [account, hand, hers, hand, account];
    const refresh = (one: Hand) => one.get(`${one.base}/deliveries`, { "x-refresh": "1" });
    await refresh(account);
    const texts = (await Promise.all(all.map(refresh))).map(({ text }) => text);
    expect(texts.map((text) => text.includes(secret.analysisId))).toEqual([true, false, true, false, true]);
  });
});

describe("whoever is removed from a space", () => {
  /** Sends a request again with the key that it had. */
  type Repeat = {
    readonly operation: string;
    readonly first: Asked;
    again(more?: AskOptions): Promise<Asked>;
  };

  /** Every write of the workspace, by a user who is ADMIN of a space of somebody else's. */
  async function writeAll(
    user: User,
  ): Promise<{ readonly repeats: readonly Repeat[]; readonly space: string }> {
    const made: Record<string, string> = { user: (await newUser()).userId };
    const repeats: Repeat[] = [];
    for (const [operation, request] of Object.entries(workspaceTests.writes)) {
      let again: Repeat["again"] | undefined;
      const isOwners = operation === "spaces.create";
      const ask: TestApi["ask"] = (method, path, options) => {
        const key = isOwners ? api.account.key : user.key;
        const asked = { ...options, key, idempotencyKey: randomUUID() };
        again = (more) => api.ask(method, path, { ...asked, ...more });
        return api.ask(method, path, asked);
      };
      let first = await request(ask, made);
      // Nobody was there to render its page in time, on a busy machine.
      while (first.status === 503) first = await request(ask, made);
      expect(first.status, operation).toBeLessThan(300);
      made[operation] = String(first.body?.id);
      if (isOwners) await setRole(made[operation], user, "ADMIN");
      else repeats.push({ operation, first, again: again! });
    }
    return { repeats, space: made["spaces.create"]! };
  }

  test("is not answered again what a request under an Idempotency-Key was answered before", async () => {
    const user = await newUser();
    const { repeats, space } = await writeAll(user);
    expect(repeats.length).toBeGreaterThan(15);
    for (const { operation, first, again } of repeats) {
      const { status, headers } = await again();
      expect([operation, status]).toEqual([operation, first.status]);
      expect(headers.get("idempotent-replayed"), operation).toBe("true");
    }
    await setRole(space, user, null);
    for (const { operation, again } of repeats) {
      const repeated = await again();
      expect([operation, repeated.status]).toEqual([operation, 404]);
      expect(told(repeated)).toEqual(told(await again({ idempotencyKey: randomUUID() })));
    }
    // A link's URL is a secret, which a member without the permission is not told again either.
    const link = repeats.find(({ operation }) => operation === "pages.links_create")!;
    await setRole(space, user, "VIEWER");
    const refused = await link.again();
    expect([refused.status, refused.body.code]).toEqual([403, "access_denied"]);
    await setRole(space, user, "EDITOR");
    expect(await link.again().then(({ body }) => body)).toEqual(link.first.body);
  });

  test("nor a replay, nor what was counted for one; what is made anew counts what is theirs", async () => {
    const user = await newUser();
    await setRole(spaceId, user, "VIEWER");
    const ask = (method: string, path: string, body?: object): Repeat => {
      const asked = { key: user.key, idempotencyKey: randomUUID(), ...(body && { body }) };
      const again = (more: AskOptions = {}) => api.ask(method, path, { ...asked, ...more });
      return { operation: path, first: null as unknown as Asked, again };
    };
    const filter = { analysis_id: secret.analysisId };
    const dryRun = ask("POST", "/v1/webhooks/replays", { filter: {}, dry_run: true });
    const create = ask("POST", "/v1/webhooks/replays", { filter });
    const counted = Number((await dryRun.again()).body.matched);
    const created = await create.again();
    expect(created).toMatchObject({ status: 202, body: { matched: 1 } });
    const path = `/v1/webhooks/replays/${created.body.id}`;
    const cancel = ask("POST", `${path}/cancel`);
    const replay = ask("POST", `/v1/webhooks/deliveries/${secret.deliveryId}/replay`);
    expect((await cancel.again()).status).toBe(200);
    expect((await replay.again()).status).toBe(202);
    for (const one of [create, cancel, replay]) {
      expect((await one.again()).headers.get("idempotent-replayed")).toBe("true");
    }

    await setRole(spaceId, user, null);
    expect((await dryRun.again()).body.matched).toBeLessThan(counted);
    for (const one of [create, cancel, replay]) {
      const repeated = await one.again();
      expect([one.operation, repeated.status]).toEqual([one.operation, 404]);
      expectNothingTold(repeated.bytes.toString(), one.operation);
    }
    expect((await api.ask("GET", path, { key: user.key })).status).toBe(404);
    // It happened once, and the account knows.
    expect((await api.ask("GET", path)).body).toMatchObject({ status: "cancelled", matched: 1 });
  });

  test("leaves links, which the one who removes them is told of", async () => {
    const user = await newUser();
    const { id: space_id } = await documents.newSpace("Left");
    await setRole(space_id, user, "EDITOR");
    const { key } = user;
    const page = await api.ask("POST", "/v1/pages", { key, body: { space_id, title: "T", markdown: "M" } });
    await api.ask("POST", `/v1/pages/${page.body.id}/publish`, { key });
    const link = async (label: string, by = key) =>
      (await api.ask("POST", `/v1/pages/${page.body.id}/links`, { key: by, body: { label } })).body;
    const [open, revoked] = [await link("open"), await link("revoked")];
    await link("the owner's", api.account.key);
    await api.ask("PATCH", `/v1/page-links/${revoked.id}`, { key, body: { status: "REVOKED" } });
    const { body } = await setRole(space_id, user, null);
    const { url: _, ...known } = open;
    expect(body).toEqual({ user_id: user.userId, open_links: [known], open_links_total: 1 });
    const revoke = { body: { status: "REVOKED" } };
    expect((await api.ask("PATCH", `/v1/page-links/${open.id}`, revoke)).status).toBe(200);
  });

  test("and has waited for the feed meanwhile, is told nothing", async () => {
    const user = await newUser();
    const { id: space } = await documents.newSpace("Waiting");
    await setRole(space, user, "VIEWER");
    await sequenceAll(database.pool);
    const { next_cursor } = (await api.ask("GET", "/v1/webhooks/events?cursor=newest", { key: user.key }))
      .body;
    const path = `/v1/webhooks/events?cursor=${next_cursor}&wait=20`;
    const before = api.waiting();
    const waiting = api.ask("GET", path, { key: user.key });
    await expect.poll(() => api.waiting()).toBe(before + 1);
    await setRole(space, user, null);
    await runIn(space, "unseen.txt");
    const looks = () => api.statements().filter((text) => text.includes("least(last.position")).length;
    const looked = looks();
    api.news.tell([api.account.accountId]);
    await expect.poll(looks).toBe(looked + 1);
    const mine = await publishOwn(`after-${randomUUID()}`);
    api.news.tell([api.account.accountId]);
    const { items } = (await waiting).body as { items: Json[] };
    expect(items.map(({ delivery_id }) => delivery_id)).toEqual([mine.deliveryId]);
  });
});

describe("statements", () => {
  const sentBy = async (path: string, key: string): Promise<readonly string[]> => {
    await api.ask("GET", path, { key });
    const before = api.statements().length;
    expect((await api.ask("GET", path, { key })).status).toBe(200);
    const sent = api.statements().slice(before);
    return sent.filter((text) => !text.includes("sealpost.rate_limits"));
  };
  test.each([
    "/v1/webhooks/deliveries",
    "/v1/webhooks/deliveries?status=abandoned&limit=1",
    "/v1/webhooks/events",
    "/v1/webhooks/replays",
    "/v1/analyses/own-one",
  ])("for a user are one more: %s", async (path) => {
    const [ofAccount, ofUser] = [await sentBy(path, api.account.ownKey), await sentBy(path, outsider.key)];
    expect(ofUser.length - ofAccount.length).toBe(1);
    expect(ofAccount.join()).not.toContain("space_id in");
    expect(ofUser.filter((text) => text.includes("workspace.space_members"))).toHaveLength(1);
  });
});

test("what is stamped is its space's, by the run's row, and an old version's replays are nobody's", async () => {
  const statuses = async () => {
    const paths = [`/v1/analyses/${secret.analysisId}`, `/v1/webhooks/replays/${replayId}`];
    const asked = await Promise.all(paths.map((path) => api.ask("GET", path, { key: outsider.key })));
    return asked.map(({ status }) => status);
  };
  const { pool } = database;
  await pool.query("update sealpost.deliveries set space_id = null where id = $1", [secret.deliveryId]);
  await pool.query("update sealpost.replays set space_ids = '{}' where id = $1", [replayId]);
  expect(await statuses()).toEqual([200, 200]);
  await pool.query("update workspace.runs set delivery_id = $1 where delivery_id = $1", [secret.deliveryId]);
  expect(await statuses()).toEqual([404, 200]);
  await pool.query("update sealpost.replays set space_ids = null where id = $1", [replayId]);
  expect(await statuses()).toEqual([404, 404]);
});
