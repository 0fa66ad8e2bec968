// Rotating SECRETS_KEY: what each step's processes can read, and that nothing sealed is forgotten.
import { randomUUID } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Pool, QueryResult } from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createAccount } from "../../../src/accounts/accounts-sql.ts";
import { claimIdempotencyKey, storingResponse } from "../../../src/base/database/idempotency.ts";
import { reseal } from "../../../src/base/database/resealing.ts";
import { isSecretsKey, resealCanary, SEALED_COLUMNS } from "../../../src/base/database/sealing.ts";
import { inTransaction } from "../../../src/base/database/transaction.ts";
import type { IdempotencyClaim } from "../../../src/base/model/idempotency.ts";
import type { SecretsKey } from "../../../src/base/model/secrets-key.ts";
import { findSigningSecrets, rotateSigningSecret } from "../../../src/delivery/signing-secrets-sql.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";

const OLD = Buffer.alloc(32, 1);
const NEW = Buffer.alloc(32, 2);
/** What the processes of each step are configured with. */
const BEFORE: SecretsKey = OLD;
const ONE: SecretsKey = [OLD, NEW];
const TWO: SecretsKey = [NEW, OLD];
const AFTER: SecretsKey = NEW;

let database: TestDatabase;
beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

type Stored = {
  readonly accountId: string;
  readonly secrets: readonly string[];
  readonly claim: IdempotencyClaim;
};

const ANSWER = '{"secret":"whsec_1"}';

/** Everything that a process seals: a secret that is rotated once, and an answer that holds one. */
async function store(key: SecretsKey): Promise<Stored> {
  const { pool } = database;
  const { accountId, signingSecret } = await createAccount(pool, "One", key);
  const rotated = await rotateSigningSecret(
    pool,
    accountId,
    { overlapSeconds: 60, endsPrevious: false },
    key,
  );
  if (rotated === "rotation_in_progress") throw new Error("it is the first");
  const fingerprint = Buffer.from("f");
  const claim = { accountId, keyId: randomUUID(), idempotencyKey: 'a/b,"c', operationKey: "x", fingerprint };
  const response = { status: 201, headers: {}, body: Buffer.from(ANSWER), holdsSecret: true };
  const counted = { userId: null, isRefused: true, auditBytes: 0 };
  await pool.query(storingResponse({ claim, response, counted }, key));
  return { accountId, secrets: [rotated.secret, signingSecret], claim };
}

async function expectReadable(stored: readonly Stored[], ...keys: readonly SecretsKey[]): Promise<void> {
  for (const key of keys) {
    expect(await isSecretsKey(database.pool, key)).toBe(true);
    for (const { accountId, secrets, claim } of stored) {
      const found = await findSigningSecrets(database.pool, accountId, key);
      expect(found.map(({ secret }) => secret)).toEqual(secrets);
      const state = await inTransaction(database.pool, (tx) => claimIdempotencyKey(tx, claim, key));
      expect(state.state === "completed" && String(state.response.body)).toBe(ANSWER);
    }
  }
}

/** As `sealpost secrets reseal` does. */
async function resealAll(pool = database.pool) {
  const done = await reseal(pool, TWO);
  await resealCanary(pool, TWO);
  return done;
}

/** Tells of each statement before it is sent. */
function watched(onQuery: (text: string) => unknown): Pool {
  const pool: Pool = Object.create(database.pool);
  pool.query = (async (text: string, values: unknown[]) => {
    await onQuery(text);
    return await database.pool.query(text, values);
  }) as Pool["query"];
  return pool;
}

describe("a rotation of SECRETS_KEY", () => {
  test("leaves nothing that a process of this step or of its neighbours cannot read", async () => {
    const stored = [await store(BEFORE)];
    await expectReadable(stored, BEFORE, ONE);
    stored.push(await store(ONE));
    await expectReadable(stored, BEFORE, ONE);
    stored.push(await store(TWO));
    await expectReadable(stored, ONE, TWO);
    // Rolled back, and on again.
    stored.push(await store(ONE), await store(TWO));
    await expectReadable(stored, ONE, TWO);
    expect(await resealAll()).toBe(3 * 3);
    await expectReadable(stored, ONE, TWO, AFTER);
    expect(await isSecretsKey(database.pool, BEFORE)).toBe(false);
    expect(await resealAll()).toBe(0);
    stored.push(await store(AFTER));
    await expectReadable(stored, TWO, AFTER);
  });

  test("can be undone after any step, also after resealing", async () => {
    const stored = [await store(BEFORE), await store(ONE), await store(TWO)];
    await resealAll();
    stored.push(await store(TWO));
    await expectReadable(stored, ONE, TWO);
    stored.push(await store(ONE));
    expect(await reseal(database.pool, ONE)).toBe(4 * 3);
    await resealCanary(database.pool, ONE);
    await expectReadable(stored, BEFORE, ONE, TWO);
    expect(await isSecretsKey(database.pool, AFTER)).toBe(false);
  });

  test("can be killed before any statement, and repeated", async () => {
    const stored = [await store(BEFORE), await store(ONE)];
    let done: unknown = null;
    for (let allowed = 0; typeof done !== "number"; allowed++) {
      expect(allowed).toBeLessThan(20);
      let sent = 0;
      const dying = watched(() => {
        if (sent++ === allowed) throw new Error("killed");
      });
      done = await resealAll(dying).catch((error) => expect(error.message).toBe("killed"));
      await expectReadable(stored, ONE, TWO);
      if (typeof done !== "number") expect(await isSecretsKey(database.pool, BEFORE)).toBe(true);
    }
    await expectReadable(stored, AFTER);
  });

  test("reseals in steps, and leaves what is not sealed as it is", async () => {
    const stored = [await store(BEFORE)];
    await database.pool.query(
      `insert into sealpost.idempotency_keys
         (account_id, key_id, idempotency_key, operation_key, fingerprint, status, headers, body)
       select sealpost.uuid_v7(), sealpost.uuid_v7(), n::text, 'x', '', 200, '{}', 'plain'
       from generate_series(1, 2500) as n`,
    );
    stored.push(await store(BEFORE));
    const reads: string[] = [];
    expect(await resealAll(watched((text) => text.includes("idempotency_keys") && reads.push(text)))).toBe(6);
    expect(reads.filter((text) => text.startsWith("select")).length).toBeGreaterThan(3);
    await expectReadable(stored, AFTER);
    const plain = "select count(*)::integer as n from sealpost.idempotency_keys where body = 'plain'";
    expect((await database.pool.query(plain)).rows).toEqual([{ n: 2_500 }]);
  });

  test("leaves a row that changes meanwhile to whoever changed it", async () => {
    await store(BEFORE);
    const changing = watched(async (text) => {
      if (/^update sealpost.idempotency_keys/.test(text))
        await database.pool.query("update sealpost.idempotency_keys set body = 'x', is_sealed = false");
    });
    expect(await reseal(changing, TWO)).toBe(2);
    const { rows } = await database.pool.query("select body from sealpost.idempotency_keys");
    expect(rows).toEqual([{ body: Buffer.from("x") }]);
  });

  test("stops at what neither key opens, and names it", async () => {
    const { accountId } = await store(BEFORE);
    const { rows } = await database.pool.query<{ id: string }>(
      `update sealpost.signing_secrets set sealed = set_byte(sealed, 20, 255 - get_byte(sealed, 20))
       where account_id = $1 and expires_at is not null returning id`,
      [accountId],
    );
    expect(await reseal(database.pool, TWO)).toEqual({ table: "sealpost.signing_secrets", id: rows[0]!.id });
  });
});

describe("what is sealed", () => {
  test("is gone once a lost key is replaced as docs/operating.md says, and nothing else is", async () => {
    const { pool } = database;
    const { accountId } = await store(OLD);
    const tx = await pool.connect();
    // A hook without its workflow.
    await tx.query("set session_replication_role = replica");
    for (const [table, text] of [
      ["sealpost.endpoints (account_id, url, sealed_headers)", "'https://hooks.example.com', 'sealed'"],
      [
        "workspace.hooks (account_id, workflow_id, key_digest, sealed_secret, created_by)",
        "gen_random_uuid(), decode(repeat('00', 32), 'hex'), 'sealed', gen_random_uuid()",
      ],
    ])
      await tx.query(`insert into ${table} values ($1, ${text})`, [accountId]);
    tx.release(true);
    const operating = await readFile(new URL("../../../docs/operating.md", import.meta.url), "utf8");
    const [, recipe = ""] =
      /### If the secrets key is lost\n[\s\S]*?```sql\n([\s\S]*?)```/.exec(operating) ?? [];
    const results = (await pool.query(recipe)) as unknown as readonly QueryResult[];
    expect(results.flatMap(({ rows }) => rows)).toEqual([
      { account_id: accountId },
      { account_id: accountId, workflow_id: expect.any(String) },
    ]);
    for (const [table, { schema = "sealpost", column, if: isSealed = "true" }] of Object.entries(
      SEALED_COLUMNS,
    )) {
      const { rows } = await pool.query(
        `select count(*)::integer as n from ${schema}.${table} where ${isSealed} and ${column} is not null`,
      );
      expect(rows, table).toEqual([{ n: 0 }]);
    }
    expect((await pool.query("select url from sealpost.endpoints")).rowCount).toBe(1);
    expect(await isSecretsKey(pool, NEW)).toBe(true);
  });

  /** Columns that hold bytes, and no sealed ones. */
  const PLAIN = [
    "analyses.digest",
    "api_keys.digest",
    "console_sessions.link_digest",
    "console_sessions.digest",
    "hooks.key_digest",
    "idempotency_keys.fingerprint",
    "notice_recipients.token_digest",
    "page_links.token_digest",
    "write_probe.filler",
  ];

  test("is among SEALED_COLUMNS: of each column of bytes it is known whether it is", async () => {
    const { rows } = await database.pool.query<{ name: string }>(
      `select distinct regexp_replace(c.relname, '_\\d{8}$', '') || '.' || attname as name
       from pg_attribute join pg_class as c on c.oid = attrelid and c.relkind in ('r', 'p')
       where relnamespace in ('sealpost'::regnamespace, 'workspace'::regnamespace) and attnum > 0
         and not attisdropped and (atttypid = 'bytea'::regtype or attname ~ 'seal|cipher|encrypt|canary')
       order by 1`,
    );
    const sealed = Object.entries(SEALED_COLUMNS).map(([table, { column }]) => `${table}.${column}`);
    const known = [
      ...PLAIN,
      ...sealed,
      "settings.secrets_canary",
      "settings.secrets_canary_next",
      "idempotency_keys.is_sealed",
    ];
    expect(rows.map(({ name }) => name).sort()).toEqual(known.sort());
  });

  test("is sealed by the files that are known here, so that a new one is not forgotten", async () => {
    const src = fileURLToPath(new URL("../../../src", import.meta.url));
    const paths = (await readdir(src, { recursive: true })).filter((path) => path.endsWith(".ts"));
    const texts = await Promise.all(paths.map((path) => readFile(join(src, path), "utf8")));
    expect(paths.filter((_, n) => /[^.\w]seal\(/.test(texts[n]!)).sort()).toEqual([
      "base/database/idempotency.ts",
      "base/database/resealing.ts",
      "base/database/sealing.ts",
      "cells/move-pages-sql.ts",
      "delivery/endpoint-headers.ts",
      "delivery/signing-secrets-sql.ts",
      "workspace/store/triggers.ts",
    ]);
  });
});
