// What one user of an account can store, of every kind: as much as is left for all others.
import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { countPublished } from "../../src/base/database/storage.ts";
import { publishAnalyses } from "../../src/publish/publish-call-sql.ts";
import { changeRows } from "../support/installation.ts";
import {
  account,
  accountKey,
  api,
  ask,
  database,
  documents,
  expectExact,
  expectFull,
  limit,
  objects,
  runs,
  stepping,
  untilFull,
  usageOf,
  useStorage,
} from "./storage-world.ts";
import { moveOnce } from "./support/moving.ts";
import { chain, sequenceAll, stepAll } from "./support/runs.ts";

useStorage();

test("answers of one user leave room for others, and those of all for what helps the account", async () => {
  await limit({ answers: 100_000 });
  const rename = async (key: string) => {
    const { body } = await ask("POST", "/v1/spaces", { key, body: { name: "filled" } });
    return (n: number) => ask("PATCH", `/v1/spaces/${body.id}`, { key, body: { name: `filled ${n}` } });
  };
  const users = [account, await api.newUser(account.accountId), await api.newUser(account.accountId)];
  const renamed: number[] = [];
  for (const { key } of users) renamed.push(await untilFull("answers", await rename(key)));
  const [first, second, third] = renamed;
  expect([first! > 1.5 * second!, second! > 1.5 * third!, third! > 0]).toEqual([true, true, true]);
  await database.pool.query(
    "update sealpost.write_bytes set answer_bytes = 100_000 where account_id = user_id",
  );
  const set = { body: { url: "https://receiver.example.com/hook" }, key: accountKey };
  expect((await ask("PUT", "/v1/webhooks/endpoint", set)).status).toBe(200);
  expect((await ask("POST", "/v1/webhooks/endpoint/pause", { key: accountKey })).status).toBe(200);
  expect((await ask("POST", "/v1/webhooks/signing-secret/rotate", { key: accountKey })).status).toBe(200);
  const made = { name: "another", scopes: ["webhooks:read"] };
  expect((await ask("POST", "/v1/api-keys", { body: made, key: accountKey })).status).toBe(201);
  const link = { viewer: { id: "v", label: "V" } };
  expectFull(await ask("POST", "/v1/console/links", { body: link, key: accountKey }), "answers");
});

test("what is never refused is, once a user has twice as much, and takes nothing of others", async () => {
  await limit({ answers: 100_000 });
  const { key } = await api.newUser(account.accountId);
  const revoke = () => ask("POST", "/v1/console/sessions/revoke", { key });
  for (let n = 0; n < 60; n++) expect((await revoke()).status).toBe(204);
  expect((await usageOf("answers")).bytes).toBeLessThanOrEqual(50_000);
  await untilFull("answers", revoke);
  expect((await ask("POST", "/v1/spaces", { body: { name: "there is room" } })).status).toBe(201);
  const link = { viewer: { id: "v", label: "V" } };
  expect((await ask("POST", "/v1/console/links", { body: link, key: accountKey })).status).toBe(201);
});

test("what one user's renames leave is no more than is left for others, who go on renaming", async () => {
  const content = randomBytes(60_000);
  await limit({ leftovers: 100_000 });
  for (const { key } of [account, await api.newUser(account.accountId)]) {
    const { id: space_id } = await documents.newSpace("large", { key });
    await documents.uploaded({ space_id }, content, { key });
    const rename = async (n: number) => {
      const answer = await documents.renameSpace(space_id, `renamed ${n}`, { key });
      while (await moveOnce(database.pool, objects, { keptMs: 3_600_000 }));
      return answer;
    };
    expect(await untilFull("leftovers", rename)).toBe(1);
  }
  await expectExact();
});

test.each(["documents", "pages", "workflows", "runs"] as const)(
  "what one user stores of %s leaves as much for others",
  async (kind) => {
    const { id: space_id } = await documents.newSpace();
    const workflow = await runs.newWorkflow(space_id, chain({ kind: "analyze" }));
    const users = [account, await api.newUser(account.accountId), await api.newUser(account.accountId)];
    for (const { userId } of users.slice(1)) {
      await ask("PUT", `/v1/spaces/${space_id}/members/${userId}`, { body: { role: "EDITOR" } });
    }
    const add = {
      documents: (key: string, n: number) =>
        documents.create({ space_id, file_name: `${key} ${n}` }, { key }),
      pages: (key: string) =>
        ask("POST", "/v1/pages", { key, body: { space_id, title: "A page", markdown: "" } }),
      workflows: (key: string) => ask("POST", "/v1/workflows", { key, body: { space_id } }),
      runs: (key: string) => ask("POST", `/v1/workflows/${workflow}/runs`, { key, body: {} }),
    }[kind];
    await limit({ [kind]: 60_000 + (await usageOf(kind)).bytes });
    const added: number[] = [];
    for (const { key } of users) added.push(await untilFull(kind, (n) => add(key, n)));
    const [first, second, third] = added;
    expect([first! > 1.5 * second!, second! > 1.5 * third!, third! > 0]).toEqual([true, true, true]);
    await expectExact();
  },
);

const pipeline = async (id: string) =>
  (
    await publishAnalyses(database.pool, [
      { accountId: account.accountId, analysis: `{"id":"${id}","status":"failed"}` },
    ])
  )[0]!;

async function counted(): Promise<number> {
  await sequenceAll(database.pool);
  while (await countPublished(database.pool, 0));
  return (await usageOf("analyses")).bytes;
}

/** Attempts that leave 100 kB in the log. */
async function attempt(deliveryId: unknown, run: number): Promise<void> {
  await database.pool.query(
    `insert into sealpost.attempts
       (delivery_id, account_id, run, number, started_at, ended_at, outcome, error_code, response_headers)
     select $1, $2, $3, n, now(), now(), 'rejected', 'http_500', $4 from generate_series(1, 10) as n`,
    [deliveryId, account.accountId, run, randomBytes(5_000).toString("hex")],
  );
}

test("what runs of users leave, and replays, stops new ones, and publishing only with half of its own", async () => {
  const { id: space_id } = await documents.newSpace();
  const workflow = await runs.newWorkflow(space_id, chain());
  const other = await api.newUser(account.accountId);
  await ask("PUT", `/v1/spaces/${space_id}/members/${other.userId}`, { body: { role: "EDITOR" } });
  const replay = (id: string, key: string) => ask("POST", `/v1/webhooks/deliveries/${id}/replay`, { key });
  const first = await pipeline("first");
  const run = await runs.started(workflow);
  await stepAll(stepping());
  const { delivery_id } = await runs.get(run.id);
  await attempt(delivery_id, 1);
  const before = await counted();

  await limit({ analyses: before + 100_000 });
  expectFull(await runs.start(workflow), "analyses");
  expect((await runs.start(workflow, {}, { key: other.key })).status).toBe(202);
  expect((await replay(first, account.key)).status).toBe(202);
  // Also of what a run published: whoever replays it need not be who started that.
  await attempt(delivery_id, 2);
  await changeRows(database.pool, "deliveries", { id: first }, { status: "failed", reason: null });
  await limit({ analyses: (await counted()) + 50_000 });
  expectFull(await replay(first, account.key), "analyses");
  expect((await replay(first, accountKey)).status).toBe(202);

  await limit({ analyses: await counted() });
  await counted();
  expectFull(await runs.start(workflow, {}, { key: other.key }), "analyses");
  await changeRows(database.pool, "deliveries", { id: first }, { status: "failed", reason: null });
  expectFull(await replay(first, accountKey), "analyses");
  const second = await pipeline("second");
  const body = { analysis: { id: "over-HTTP", status: "succeeded" } };
  expect((await ask("POST", "/v1/analyses", { key: accountKey, body })).status).toBe(202);
  await attempt(second, 1);
  await counted();
  await expect(pipeline("beyond-half")).rejects.toMatchObject({ code: "account_full" });
});

test("bulk replays of one user, ended ones included, leave as much for others", async () => {
  for (let n = 0; n < 10; n++) await pipeline(`replayed-${n}`);
  const users = [account, await api.newUser(account.accountId), await api.newUser(account.accountId)];
  await limit({ replays: 60_000 });
  const create = async (key: string) => {
    const body = { filter: {}, rate_per_second: 1_000 };
    const answer = await ask("POST", "/v1/webhooks/replays", { key, body });
    const ended = { status: "done", replayed: 10, ended_at: new Date() };
    await changeRows(database.pool, "replays", { account_id: account.accountId }, ended);
    return answer;
  };
  const made: number[] = [];
  for (const { key } of [...users, { key: accountKey }]) {
    made.push(await untilFull("replays", () => create(key)));
  }
  expect(made).toEqual([8, 4, 2, 2]);
});
