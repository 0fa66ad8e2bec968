import { beforeEach, expect, test } from "vitest";
import { SECRETS_KEPT_MAX } from "../../src/delivery/signing-secrets-sql.ts";
import { countRows } from "../support/installation.ts";
import { openApi } from "../support/open.ts";
import type { Json, TestAccount } from "../support/sealpost-api.ts";

const path = "/v1/webhooks/signing-secret";
const DAY_SECONDS = 86_400;

const { database, api } = await openApi();
let account: TestAccount;
beforeEach(async () => {
  const made = await api.newAccount();
  // What is the account's is not for its users.
  account = { ...made, key: made.ownKey };
});

const rotate = (body?: unknown, idempotencyKey?: string) =>
  api.ask("POST", `${path}/rotate`, { ...account, body, ...(idempotencyKey ? { idempotencyKey } : {}) });

const SECRET = /^whsec_[A-Za-z0-9+/]{43}=$/;

test("the secret is the one that the account was made with", async () => {
  const { status, body, headers } = await api.ask("GET", path, account);
  expect(status).toBe(200);
  expect(body).toEqual({ signing_secret: account.secret, created_at: expect.any(String), previous: null });
  expect(headers.get("cache-control")).toBe("no-store");
});

test.each([
  ["a day unless asked otherwise", undefined, DAY_SECONDS],
  ["what was asked for", { overlap_seconds: 60 }, 60],
  ["at most 7 days", { overlap_seconds: 7 * DAY_SECONDS }, 7 * DAY_SECONDS],
])("a rotated secret signs along for %s", async (_, body, seconds) => {
  const before = await api.ask("GET", path, account);
  const rotated = await rotate(body);
  expect(rotated.status).toBe(200);
  expect(rotated.body).toEqual({
    signing_secret: expect.stringMatching(SECRET),
    created_at: expect.any(String),
    previous: {
      signing_secret: account.secret,
      created_at: before.body.created_at,
      expires_at: expect.any(String),
    },
  });
  const { expires_at } = rotated.body.previous as { expires_at: string };
  expect(Date.parse(expires_at) - Date.parse(String(rotated.body.created_at))).toBe(seconds * 1000);
  expect(rotated.body.signing_secret).not.toBe(account.secret);
  expect((await api.ask("GET", path, account)).body).toEqual(rotated.body);
});

test("without an overlap the old one ends at once", async () => {
  expect((await rotate({ overlap_seconds: 0 })).body.previous).toBeNull();
});

test("previous_signature says whether the old one signs along; omitted, it ends at once", async () => {
  const both = await rotate({ overlap_seconds: 60, previous_signature: "after" });
  expect(both.body.previous).toMatchObject({ signing_secret: account.secret });
  // For whoever has only the oldest secret it is as with every other rotation.
  expect((await rotate({ previous_signature: "omit" })).body.code).toBe("rotation_in_progress");
  const alone = await rotate({ overlap_seconds: 60, previous_signature: "omit", end_previous: true });
  expect([alone.status, alone.body.previous]).toEqual([200, null]);
  expect((await api.ask("GET", path, account)).body).toEqual(alone.body);
  // Nothing overlaps, so that the next rotation is none too early.
  expect((await rotate({ previous_signature: "omit" })).status).toBe(200);
  const { body } = await api.ask("GET", "/v1/audit", account);
  expect((body.items as Json[])[0]).toMatchObject({ details: { previous_signature: "omit" } });
  expect((await rotate({ previous_signature: "before" })).status).toBe(400);
});

test("a second rotation is refused while the first lets the old secret go on", async () => {
  const first = await rotate();
  for (const body of [undefined, {}, { overlap_seconds: 0 }, { end_previous: false }]) {
    const refused = await rotate(body);
    expect([refused.status, refused.body.code]).toEqual([409, "rotation_in_progress"]);
  }
  expect((await api.ask("GET", path, account)).body).toEqual(first.body);
});

test("a second rotation that says so ends what the first let go on", async () => {
  const first = await rotate();
  const second = await rotate({ end_previous: true });
  expect(second.status).toBe(200);
  expect(second.body.previous).toMatchObject({ signing_secret: first.body.signing_secret });
});

test("after one without an overlap, nothing stands in the way of the next", async () => {
  await rotate({ overlap_seconds: 0 });
  expect((await rotate()).status).toBe(200);
});

test.each([[-1], [604_801], [1.5], ["60"], [null]])(
  "an overlap of %s is refused",
  async (overlap_seconds) => {
    const refused = await rotate({ overlap_seconds });
    expect([refused.status, refused.body.code]).toEqual([400, "invalid_request"]);
    expect((await api.ask("GET", path, account)).body).toMatchObject({ signing_secret: account.secret });
  },
);

test("the same again answers the same secret, which no row holds in the clear", async () => {
  const first = await rotate({}, "once");
  const again = await rotate({}, "once");
  expect([again.status, again.body]).toEqual([200, first.body]);
  expect(again.headers.get("idempotent-replayed")).toBe("true");

  const secrets = [first.body, first.body.previous as Json].map(({ signing_secret }) =>
    String(signing_secret),
  );
  const { rows } = await database.pool.query<{ text: string }>(
    // Bytes come as hexadecimal text.
    `select k::text as text from sealpost.idempotency_keys as k
     union all select s::text from sealpost.signing_secrets as s union all select a::text from sealpost.audit_log as a`,
  );
  expect(rows.length).toBeGreaterThanOrEqual(3);
  const everything = rows.map(({ text }) => text).join() + JSON.stringify(api.log);
  for (const secret of secrets) {
    expect(everything).not.toContain(secret);
    expect(everything).not.toContain(Buffer.from(secret).toString("hex"));
  }
});

test("of a secret that is rotated over and over the newest are kept", async () => {
  for (let n = 0; n < SECRETS_KEPT_MAX + 5; n++)
    expect((await rotate({ overlap_seconds: 0 })).status).toBe(200);
  await rotate();
  expect(await countRows(database.pool, "signing_secrets", { account_id: account.accountId })).toBe(
    SECRETS_KEPT_MAX,
  );
  const { signing_secret, previous } = (await api.ask("GET", path, account)).body;
  expect([signing_secret, (previous as Json).signing_secret]).toEqual([
    expect.stringMatching(SECRET),
    expect.stringMatching(SECRET),
  ]);
});

test("rotations at once take turns, and leave one current secret", async () => {
  const all = { end_previous: true };
  const rotated = await Promise.all([rotate(all), rotate(all), rotate(all), rotate(all)]);
  expect(rotated.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  const current = await api.ask("GET", path, account);
  expect(rotated.map(({ body }) => body.signing_secret)).toContain(current.body.signing_secret);
});

test("of rotations at once that end nothing, one is made", async () => {
  const rotated = await Promise.all([rotate(), rotate(), rotate(), rotate()]);
  expect(rotated.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
});
