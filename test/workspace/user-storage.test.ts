// What one user of an account can store, of every kind: as much as is left for all others.
import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
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
  untilFull,
  usageOf,
  useStorage,
} from "./storage-world.ts";
import { moveOnce } from "./support/moving.ts";
import { chain } from "./support/runs.ts";

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
