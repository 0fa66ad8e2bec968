import { randomUUID } from "node:crypto";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { claimIdempotencyKeys, storingResponse } from "../../src/base/database/idempotency.ts";
import { deleteMoved } from "../../src/cells/calling-off.ts";
import type { MovePart } from "../../src/cells/move.ts";
import { moveAccount } from "../../src/cells/move-account.ts";
import { findOlderTransactions } from "../../src/cells/moves-sql.ts";
import { sealHeaders, unsealHeaders } from "../../src/delivery/endpoint-headers.ts";
import { findEndpoint, setEndpoint } from "../../src/delivery/endpoint-sql.ts";
import { findSigningSecrets } from "../../src/delivery/signing-secrets-sql.ts";
import { sequenceEvents } from "../../src/feed/feed-sql.ts";
import { countActivity } from "../../src/log/activity-sql.ts";
import { createTestCells, killedAt, readAccount, TARGET_KEY, type TestCells } from "../support/cells.ts";
import { claim, publishAt } from "../support/delivery-rows.ts";
import {
  begin,
  countRows,
  createTestAccount,
  createTestKey,
  createTestUser,
  insertRow,
  makePartitionsFrom,
  publish,
  rotateSecret,
  rowOf,
  rowsOf,
  SECRETS_KEY,
} from "../support/installation.ts";

let cells: TestCells;
beforeEach(async () => {
  cells = await createTestCells();
});
afterEach(() => cells.drop());

const ENDPOINT = "https://hooks.example.com/x";
const GATE = { name: "x-gate", value: "a secret of its own", secret: true };
const ODD = String.raw`{"id":"odd","status":"succeeded","n":1E400,"t":"\u0000 \ud800, {\"}","n":[ 1 ]}`;

const claimOf = (accountId: string, keyId: string, idempotencyKey: string) => ({
  accountId,
  keyId,
  idempotencyKey,
  operationKey: "webhooks.signing_secret.rotate",
  fingerprint: Buffer.alloc(32, 1),
});

/** An account with something in every table. */
async function fill(): Promise<{ accountId: string; keyId: string; secrets: string[]; deliveryId: string }> {
  const { pool } = cells.source;
  const { accountId, secret } = await createTestAccount(cells.source, ENDPOINT);
  const sealedHeaders = sealHeaders([GATE], ENDPOINT, accountId, SECRETS_KEY);
  await setEndpoint(pool, accountId, ENDPOINT, { signsStandard: true, sealedHeaders });
  const secrets = [await rotateSecret(pool, accountId, 3_600), secret];
  const { keyId } = await createTestKey(pool, accountId);
  await createTestUser(pool, accountId);
  const deliveryId = await publish(pool, accountId, ODD);
  for (let n = 0; n < 250; n++) await publish(pool, accountId, `{"id":"a-${n}","status":"failed"}`);
  await publish(pool, accountId, '{"id":"own","status":"succeeded"}', "https://own.example.com/");
  const fiveDaysAgo = new Date(Date.now() - 5 * 86_400_000);
  await makePartitionsFrom(pool, fiveDaysAgo.toISOString(), 1);
  const [old] = await publishAt(pool, accountId, fiveDaysAgo, ["old"]);
  await sequenceEvents(pool, randomUUID(), 1_000);
  const attempt = {
    account_id: accountId,
    delivery_id: old,
    run: 1,
    started_at: fiveDaysAgo,
    ended_at: fiveDaysAgo,
  };
  for (const number of [1, 2, 3]) {
    const answer = { number, outcome: "rejected", error_code: "status_503", status_code: 503, dns_ms: 0.1 };
    await insertRow(pool, "attempts", { ...attempt, ...answer });
  }
  const replay = await insertRow(pool, "replays", {
    account_id: accountId,
    status: "running",
    filter: "{}",
    rate_per_second: 1,
    matched: 1,
    created_at: new Date(),
    paced_at: new Date(),
  });
  await insertRow(pool, "replay_items", { replay_id: replay.id, position: 1, delivery_id: old });
  await insertRow(pool, "audit_log", {
    account_id: accountId,
    operation_key: "accounts.create",
    actor: "command_line",
  });
  await pool.query(
    storingResponse(
      {
        claim: claimOf(accountId, keyId, "k-1"),
        response: { status: 200, headers: { etag: "x" }, body: Buffer.from("a secret"), holdsSecret: true },
        counted: { userId: null, isRefused: true, auditBytes: 0 },
      },
      SECRETS_KEY,
    ),
  );
  const notice = { account_id: accountId, kind: "secret.expiring", subject: "s", details: "{}" };
  await insertRow(pool, "notices", notice);
  const recipient = await insertRow(pool, "notice_recipients", {
    account_id: accountId,
    address: "a@example.com",
  });
  const mail = { account_id: accountId, recipient_id: recipient.id, address: "a@example.com" };
  await insertRow(pool, "notice_mails", mail);
  await insertRow(pool, "endpoint_health", { account_id: accountId, failed_attempts: 3 });
  const certificate = { account_id: accountId, host: "hooks.example.com", ends_at: new Date() };
  await insertRow(pool, "endpoint_certificates", certificate);
  await insertRow(pool, "answered_lanes", { account_id: accountId, lane: "7" });
  await insertRow(pool, "erasures", { account_id: accountId, analysis_id: "gone" });
  await insertRow(pool, "forgetting", {
    account_id: accountId,
    delivery_id: randomUUID(),
    look_at: new Date(2_000_000_000_000),
  });
  const reader = { account_id: accountId, name: "one", position: 1, key_id: keyId };
  await insertRow(pool, "feed_consumers", { ...reader, updated_at: new Date() });
  await insertRow(pool, "refusals", { account_id: accountId, url: "https://a.example.com/" });
  await insertRow(pool, "quotas", { account_id: accountId, quota: "runs_per_day", most: 5 });
  await insertRow(pool, "receivers", {
    account_id: accountId,
    origin: "https://a.example.com",
    proven_at: new Date(),
  });
  return { accountId, keyId, secrets, deliveryId };
}

/** Without what differs between the two for a reason. */
function comparable(account: Readonly<Record<string, readonly string[]>>) {
  const { parked_deliveries: _, accounts: __, ...tables } = account;
  const drop: Record<string, readonly string[]> = {
    bodies: ["serial"],
    replays: ["count_at"],
    notice_mails: ["due_at"],
    signing_secrets: ["sealed"],
    endpoints: ["sealed_headers"],
    idempotency_keys: ["body"],
  };
  return Object.fromEntries(
    Object.entries(tables).map(([name, rows]) => [
      name,
      rows
        .map((row) => JSON.parse(row) as Record<string, unknown>)
        .filter(({ operation_key }) => operation_key !== "accounts.move")
        .map((row) => JSON.stringify(row, (key, value) => (drop[name]?.includes(key) ? undefined : value)))
        .sort(),
    ]),
  );
}

const openOf = async (pool: TestCells["source"]["pool"], accountId: string) =>
  (await rowsOf(pool, "open_deliveries", { account_id: accountId })).map(({ wake_at: _, ...row }) => row);

describe("moving an account", () => {
  it("takes everything along, and leaves the source closed and readable", async () => {
    const { accountId, keyId, secrets, deliveryId } = await fill();
    const before = await readAccount(cells.source.pool, accountId);
    const open = await openOf(cells.source.pool, accountId);
    expect(open).toHaveLength(253);
    const empty = Object.entries(before).filter(([, rows]) => rows.length === 0);
    expect(empty.map(([name]) => name)).toEqual(["parked_deliveries"]);

    await moveAccount(cells.move(accountId));

    const after = await readAccount(cells.target.pool, accountId);
    expect(comparable(after)).toEqual(comparable(before));
    expect(await openOf(cells.target.pool, accountId)).toEqual(open);
    expect(await findSigningSecrets(cells.target.pool, accountId, TARGET_KEY)).toMatchObject(
      secrets.map((secret) => ({ secret })),
    );
    const { sealedHeaders } = (await findEndpoint(cells.target.pool, accountId))!;
    expect(unsealHeaders(sealedHeaders, ENDPOINT, accountId, TARGET_KEY)).toEqual([GATE]);
    const answered = claimOf(accountId, keyId, "k-1");
    expect(await claimIdempotencyKeys(cells.target.pool as never, [answered], TARGET_KEY)).toMatchObject([
      { state: "completed", response: { body: Buffer.from("a secret") } },
    ]);
    expect(await claimIdempotencyKeys(cells.source.pool as never, [answered], SECRETS_KEY)).toEqual([
      { state: "moved", cell: "c2" },
    ]);
    // The exact bytes.
    const { rows } = await cells.target.pool.query(
      "select analysis::text as text, serial from sealpost.bodies where delivery_id = $1",
      [deliveryId],
    );
    expect(rows).toEqual([{ text: ODD, serial: null }]);

    // What ended long ago is counted when it arrives.
    await countActivity(cells.target.pool, 0);
    const counted = await rowsOf(cells.target.pool, "activity", { account_id: accountId });
    expect(counted).toMatchObject([{ outcome: "rejected", attempts: 3 }]);

    await expect(publish(cells.source.pool, accountId, ODD)).rejects.toMatchObject({
      code: "SP007",
      message: expect.stringContaining('"c2"'),
    });
    expect(await publish(cells.target.pool, accountId, ODD)).toBe(deliveryId);
    expect(await countRows(cells.source.pool, "open_deliveries")).toBe(0);
    expect(await rowOf(cells.source.pool, "moves", { account_id: accountId })).toMatchObject({
      step: "done",
    });
    for (const { pool } of [cells.source, cells.target]) {
      expect(await countRows(pool, "audit_log", { operation_key: "accounts.move" })).toBe(1);
    }
  });

  it("goes on wherever it was killed", async () => {
    const { accountId } = await fill();
    const before = await readAccount(cells.source.pool, accountId);
    const open = await openOf(cells.source.pool, accountId);
    // Twice at each place, so that what a table has over one page is cut in the middle, too.
    const kills = new Map<string, number>();
    const onProgress = (part: MovePart, detail: string | null) => {
      const place = `${part} ${detail ?? ""}`.trim();
      const times = kills.get(place) ?? 0;
      if (times === 2) return;
      kills.set(place, times + 1);
      throw new Error("killed");
    };
    for (let isDone = false; !isDone; ) {
      isDone = await moveAccount(cells.move(accountId, { onProgress })).then(
        () => true,
        (error: Error) => {
          if (error.message !== "killed") throw error;
          return false;
        },
      );
    }
    for (const part of ["prepare", "close", "park", "still", "copy deliveries", "open", "finish"]) {
      expect(kills.get(part)).toBe(2);
    }
    expect(comparable(await readAccount(cells.target.pool, accountId))).toEqual(comparable(before));
    expect(await openOf(cells.target.pool, accountId)).toEqual(open);
  });

  it("is unknown at the target until all is there", async () => {
    const { accountId } = await fill();
    await expect(moveAccount(cells.move(accountId, killedAt("open")))).rejects.toThrow("killed");
    await expect(publish(cells.target.pool, accountId, ODD)).rejects.toMatchObject({ code: "SP001" });
    expect(await countRows(cells.target.pool, "open_deliveries")).toBe(0);
  });

  it("waits for a transaction that published before, and for an old snapshot that may publish yet", async () => {
    const { accountId } = await createTestAccount(cells.source, ENDPOINT);
    const published = await begin(cells.source.pool);
    const first = await publish(published.client, accountId, '{"id":"1","status":"succeeded"}');
    const old = await begin(cells.source.pool, "set transaction isolation level repeatable read; select 1");
    const waited: string[] = [];
    let ended = 0;
    const onProgress = (part: MovePart, detail: string | null) => {
      if (part === "wait_for_transactions" && detail !== null) waited.push(detail);
      if (part === "wait_for_transactions" && detail !== null && ended++ === 0) void endBoth();
    };
    let second = "";
    async function endBoth() {
      await published.commit();
      second = await publish(old.client, accountId, '{"id":"2","status":"succeeded"}');
      await old.commit();
    }
    await moveAccount(cells.move(accountId, { onProgress }));
    expect(waited[0]).toContain("and 1 more");
    const ids = (await rowsOf(cells.target.pool, "deliveries", { account_id: accountId })).map(
      ({ id }) => id,
    );
    expect(ids.sort()).toEqual([first, second].sort());
    expect(await countRows(cells.target.pool, "open_deliveries")).toBe(2);
  });

  it("sees whom it has to wait for with no more rights than an owner of the schema has", async () => {
    const role = `plain_${randomUUID().slice(0, 8)}`;
    const { pool } = cells.source;
    await pool.query(`create role ${role}`);
    const old = await begin(pool, "set transaction isolation level repeatable read; select 1");
    const touching = await begin(pool, "select from sealpost.accounts");
    const idle = await begin(pool, "select 1");
    const plain = await begin(pool, `set local role ${role}`);
    const seen = await findOlderTransactions(plain.client as never);
    const pidOf = async ({ client }: typeof old) =>
      (await client.query<{ pid: number }>("select pg_backend_pid() as pid")).rows[0]!.pid;
    const pids = [await pidOf(old), await pidOf(touching)];
    for (const one of [plain, idle, touching, old]) await one.rollback();
    await pool.query(`drop role ${role}`);
    expect(seen.map(({ pid }) => pid).sort()).toEqual(pids.sort());
  });

  it("waits for an attempt, and logs one that was cut", async () => {
    const { accountId } = await createTestAccount(cells.source, ENDPOINT);
    const id = await publish(cells.source.pool, accountId, '{"id":"1","status":"succeeded"}');
    await claim(cells.source.pool, [id], { leaseMs: 1_500 });
    const waited: (string | null)[] = [];
    const onProgress = (part: MovePart, detail: string | null) =>
      void (part === "park" && waited.push(detail));
    await moveAccount(cells.move(accountId, { onProgress }));
    expect(waited).toContainEqual(expect.stringContaining("1 deliveries"));
    expect(await rowOf(cells.target.pool, "attempts", { delivery_id: id })).toMatchObject({
      outcome: "interrupted",
    });
    expect(await rowOf(cells.target.pool, "open_deliveries")).toMatchObject({
      delivery_id: id,
      lease_token: null,
      attempts_in_run: 1,
      interruptions: 1,
    });
  });

  it("brings an account back to where it was", async () => {
    const { accountId, deliveryId } = await fill();
    await moveAccount(cells.move(accountId));
    const { source, target } = cells.move(accountId);
    const back = cells.move(accountId, {
      source: target,
      target: source,
      targetName: "c1",
      sourceName: "c2",
    });
    await expect(moveAccount(back)).rejects.toThrow("delete-moved");
    await deleteMoved(source, accountId);
    const left = Object.entries(await readAccount(cells.source.pool, accountId)).filter(
      ([, rows]) => rows.length > 0,
    );
    expect(left.map(([name]) => name).sort()).toEqual(["accounts", "api_keys"]);
    await expect(publish(cells.source.pool, accountId, ODD)).rejects.toMatchObject({ code: "SP007" });

    const there = comparable(await readAccount(cells.target.pool, accountId));
    await moveAccount(back);
    expect(comparable(await readAccount(cells.source.pool, accountId))).toEqual(there);
    expect(await publish(cells.source.pool, accountId, ODD)).toBe(deliveryId);
  });
});
