import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { callOffMove, deleteMoved } from "../../src/cells/calling-off.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { createTestCells, killedAt, TARGET_KEY, type TestCells } from "../support/cells.ts";
import { createTestDatabase } from "../support/database.ts";
import { rowOf, SECRETS_KEY } from "../support/installation.ts";
import { type Asked, startTestApi, type TestAccount, type TestApi } from "../support/sealpost-api.ts";

let cells: TestCells;
let source: TestApi;
let target: TestApi;
let account: TestAccount;

beforeAll(async () => {
  cells = await createTestCells();
  source = await startTestApi(cells.source);
  target = await startTestApi(cells.target, { SECRETS_KEY: TARGET_KEY.toString("base64") });
});
afterAll(async () => {
  await source.close();
  await target.close();
  await cells.drop();
});
beforeEach(async () => {
  account = await source.newAccount();
});

const analysis = (id: string) => ({ analysis: { id, status: "succeeded" } });

const MOVED = {
  code: "account_moved",
  status: 409,
  errors: [{ path: "account", message: 'The account is in the cell "c2".' }],
};

function publish(api: TestApi, id: string, idempotencyKey: string): Promise<Asked> {
  return api.ask("POST", "/v1/analyses", { key: account.ownKey, body: analysis(id), idempotencyKey });
}

describe("at the source of a move", () => {
  it("a write is 409 account_moved and names the cell, even one that was answered; reads go on", async () => {
    const published = await publish(source, "a", "k-a");
    const rotate = { key: account.ownKey, body: {}, idempotencyKey: "k-r" };
    const rotated = await source.ask("POST", "/v1/webhooks/signing-secret/rotate", rotate);
    await moveAccount(cells.move(account.accountId));

    expect((await publish(source, "a", "k-a")).body).toMatchObject(MOVED);
    expect((await publish(source, "b", "k-b")).body).toMatchObject(MOVED);
    expect((await source.ask("POST", "/v1/webhooks/signing-secret/rotate", rotate)).body).toMatchObject(
      MOVED,
    );
    for (const path of [
      "/v1/analyses/a",
      "/v1/webhooks/deliveries",
      "/v1/webhooks/signing-secret",
      "/v1/audit",
    ]) {
      expect((await source.ask("GET", path, { key: account.ownKey })).status, path).toBe(200);
    }

    const again = await publish(target, "a", "k-a");
    expect([again.status, again.body]).toEqual([202, published.body]);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect((await publish(target, "a", "k-another")).body).toEqual(published.body);
    expect((await target.ask("POST", "/v1/webhooks/signing-secret/rotate", rotate)).bytes).toEqual(
      rotated.bytes,
    );
    const page = await target.ask("GET", "/v1/webhooks/deliveries", { key: account.ownKey });
    expect(page.body).toMatchObject({ total: 1, items: [{ analysis_id: "a" }] });
  });

  it("what is erased at the target is read until the rest is deleted here, and the answer says so", async () => {
    await publish(source, "e", "k-e");
    const move = cells.move(account.accountId);
    await moveAccount(move);
    const path = "/v1/analyses/e";
    const key = await target.newKey(account.accountId, ["analyses:erase", "analyses:read"]);
    expect((await target.ask("DELETE", path, { key })).body).toMatchObject({ came_from: ["c1"] });
    expect((await target.ask("GET", path, { key })).status).toBe(410);
    expect((await source.ask("GET", path, { key: account.ownKey })).status).toBe(200);
    await deleteMoved(move.source, account.accountId);
    expect((await source.ask("GET", path, { key: account.ownKey })).body).toMatchObject(MOVED);
  });

  it("what is erased names every cell that it was in, one without a name, too", async () => {
    await publish(source, "e", "k-e");
    const first = cells.move(account.accountId, { sourceName: null });
    await moveAccount(first);
    const third = await createTestDatabase();
    const there = { pool: third.pool, secretsKey: SECRETS_KEY };
    const second = { ...first, source: first.target, target: there, sourceName: "c2", targetName: "c3" };
    await expect(moveAccount({ ...second, ...killedAt("copy") })).rejects.toThrow("killed");
    await callOffMove(second);
    const key = await target.newKey(account.accountId, ["analyses:erase"]);
    const erased = await target.ask("DELETE", "/v1/analyses/e", { key });
    expect([erased.status, erased.body.came_from]).toEqual([200, ["(unnamed)"]]);
    await moveAccount(second);
    expect(await rowOf(third.pool, "accounts", { id: account.accountId })).toMatchObject({
      came_from: ["(unnamed)", "c2"],
    });
    await third.drop();
  });

  it("a key that acted for a user opens nothing once the rest is deleted, users with it", async () => {
    const move = cells.move(account.accountId);
    await moveAccount(move);
    const ask = (api: TestApi, key: string) => api.ask("GET", "/v1/api-keys", { key });
    expect((await ask(source, account.key)).body.total).toBe(1);
    await deleteMoved(move.source, account.accountId);
    expect((await ask(source, account.key)).status).toBe(401);
    expect((await publish(source, "a", "k-a")).body.code, "the account's own").toBe("account_moved");
    expect((await ask(target, account.key)).body.total).toBe(1);
  });

  it("a batch goes on without the accounts that have moved", async () => {
    await moveAccount(cells.move(account.accountId));
    const other = await source.newAccount();
    const answers = await Promise.all(
      [other.ownKey, account.ownKey, other.ownKey].map((key, n) =>
        source.ask("POST", "/v1/analyses", { key, body: analysis(`batch-${n}`) }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual([202, 409, 202]);
  });

  it("an account that is not there yet at the target is unknown", async () => {
    expect((await publish(target, "a", "k-a")).status).toBe(401);
  });
});
