// An account whose storage tests limit, fill and count.
import { afterAll, beforeAll, beforeEach, expect } from "vitest";
import { writeQuotas, writeStorageLimits } from "../../src/base/database/storage.ts";
import {
  QUOTAS,
  type Quota,
  STORAGE_KINDS,
  type StorageKind,
  type StorageLimits,
} from "../../src/base/model/storage.ts";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import type { TestDatabase } from "../support/database.ts";
import type { Asked, TestAccount, TestApi } from "../support/sealpost-api.ts";
import { digestOf, documentsOf } from "./support/documents.ts";
import { startStillApi } from "./support/moving.ts";
import { runsOf } from "./support/runs.ts";
import { workflowsOf } from "./support/workflows.ts";

export const MIB = 1_048_576;
const NO_LIMIT = Object.fromEntries(STORAGE_KINDS.map((kind) => [kind, null])) as StorageLimits;

export let database: TestDatabase;
export let api: TestApi;
export let objects: ObjectStore;
/** Each test has an account of its own. */
export let account: TestAccount;
export let accountKey: string;

/** For every test of the file that calls it. */
export function useStorage(): void {
  let close: () => Promise<void>;
  beforeAll(async () => {
    ({ database, api, objects, close } = await startStillApi({
      transferLimits: { ...TRANSFER_LIMITS, uploadsMax: 200 },
    }));
  });
  afterAll(() => close());
  beforeEach(async () => {
    account = await api.newAccount();
    accountKey = await api.newKey(account.accountId);
    await limit({});
  });
}

export const ask: TestApi["ask"] = (method, path, options) =>
  api.ask(method, path, { key: account.key, ...options });
export const documents = documentsOf((...asked) => ask(...asked));
export const runs = runsOf((...asked) => ask(...asked));
export const workflows = workflowsOf((...asked) => ask(...asked));
export const stepping = () => ({ pool: database.pool, objects });

export async function limit(limits: Partial<Record<StorageKind, number>>): Promise<void> {
  await writeStorageLimits(database.pool, { ...NO_LIMIT, ...limits });
}

/** Of what one user may have where nobody else has anything: as much as is left for others. */
export const limitUser = (limits: Partial<Record<StorageKind, number>>) =>
  limit(Object.fromEntries(Object.entries(limits).map(([kind, bytes]) => [kind, 2 * bytes])));

type Use = { readonly kind: string; readonly bytes: number; readonly bytes_left: number | null };

export async function usageOf(kind: StorageKind): Promise<Use> {
  const { status, body } = await ask("GET", "/v1/usage", { key: accountKey });
  expect(status).toBe(200);
  return (body.storage as Use[]).find((use) => use.kind === kind)!;
}

/** An upload of zeros that stops after the first. Resolves with null when it is cut. */
export async function beginUpload(id: unknown, size: number, cut: AbortSignal): Promise<Response | null> {
  const request = {
    method: "PUT",
    headers: {
      authorization: `Bearer ${account.key}`,
      "idempotency-key": `upload ${id}`,
      ...{ "content-type": "text/plain", "content-length": String(size) },
      "content-digest": digestOf(Buffer.alloc(size)),
    },
    body: new ReadableStream({ start: (stream) => stream.enqueue(Buffer.alloc(1_000)) }),
    signal: cut,
    duplex: "half" as const,
  };
  return await fetch(new URL(`/v1/documents/${id}/content`, api.url), request).catch(() => null);
}

type QuotaBody = { readonly quota: Quota; readonly used: number; readonly max: number | null };

/** What the API says that there is of a quota. */
export async function quotaOf(quota: Quota): Promise<QuotaBody> {
  const { status, body } = await ask("GET", "/v1/usage", { key: accountKey });
  expect(status).toBe(200);
  return (body.quotas as QuotaBody[]).find((use) => use.quota === quota)!;
}

export const setQuotas = (quotas: Partial<Record<Quota, number | null>>) =>
  writeQuotas(database.pool, account.accountId, quotas);

/** Refused for that quota, with the number that it has. */
export function expectBeyond({ status, body }: Asked, quota: Quota, most: number): void {
  const [code, refused] = quota.startsWith("space_")
    ? ["space_too_large", 413]
    : ["billing_credits_exhausted", 402];
  expect([status, body.code]).toEqual([refused, code]);
  const message = `The account may have ${most} ${QUOTAS[quota].what}, and this would exceed that.`;
  expect(body.errors).toEqual([{ path: "account", message }]);
}

/** Asks until it is refused. Returns how often it was not. */
export async function untilFull(kind: StorageKind, tryOnce: (n: number) => Promise<Asked>): Promise<number> {
  for (let n = 0; ; n++) {
    const answer = await tryOnce(n);
    if (answer.status < 300) continue;
    expectFull(answer, kind);
    return n;
  }
}

export function expectFull({ status, body }: Asked, kind: StorageKind): void {
  expect([status, body.code]).toEqual([409, "storage_full"]);
  expect(JSON.stringify(body.errors)).toContain(
    kind === "answers" ? "of answers a day" : `kind \\"${kind}\\"`,
  );
}

/** What the rows are, counted anew, is what was added up as they came and went: for the account, users and spaces. */
export async function expectExact(): Promise<void> {
  const { rows } = await database.pool.query<{ kind: string; stored: number; counted: number }>(
    `with of_runs (run_id, bytes) as (
       select id, 1024 + octet_length(input::text) from workspace.runs where account_id = $1
       union all select run_id, 1024 from workspace.node_runs where account_id = $1
       union all select run_id, 256 + octet_length(item::text) from workspace.node_items where account_id = $1
     ), own (kind, user_id, space_id, amount) as (
       select 'documents', uploaded_by, space_id, 1024 + case when has_content then file_size else 0 end
         from workspace.documents where account_id = $1
       union all select 'document_count', uploaded_by, space_id, 1 from workspace.documents where account_id = $1
       union all select 'documents', owner_id, null, 1024 from workspace.spaces where account_id = $1
       union all select 'documents', created_by, space_id, 1024 from workspace.folders where account_id = $1
       union all select case when is_reserved then 'documents' else 'leftovers' end, user_id,
           case when is_reserved then space_id end, bytes + case when is_reserved then 0 else 1024 end
         from workspace.loose_objects where account_id = $1
       union all select 'pages', created_by, null, 1024 + octet_length(markdown) from workspace.pages
         where account_id = $1
       union all select 'pages', published_by, null, 1024 + octet_length(markdown) + octet_length(html)
         from workspace.page_versions where account_id = $1
       union all select 'pages', created_by, null, 1024 from workspace.page_links where account_id = $1
       union all select 'workflows', created_by, null, 1024 + octet_length(draft::text) from workspace.workflows
         where account_id = $1
       union all select 'workflows', created_by, null, 1024 + octet_length(definition::text)
         from workspace.workflow_versions where account_id = $1
       union all select 'runs', requested_by, null, bytes from of_runs join workspace.runs on id = run_id
       union all select 'ended_runs', requested_by, null, bytes from of_runs join workspace.runs on id = run_id
         where completed_at is not null
     ), counted as (
       select kind, holder_id, sum(amount) as amount from own
       cross join lateral (values ($1), (user_id), (space_id)) as holders (holder_id)
       where holder_id is not null group by kind, holder_id
     ), stored as (
       select held.key as kind, holder_id, held.value as amount from workspace.storage as s
       cross join lateral jsonb_each_text(to_jsonb(s) - '{account_id,holder_id,run_count,run_day}'::text[]) as held
       where account_id = $1
     )
     select kind, coalesce(stored.amount::float8, 0) as stored, coalesce(counted.amount::float8, 0) as counted
     from stored full join counted using (kind, holder_id)`,
    [account.accountId],
  );
  expect(rows.length).toBeGreaterThan(0);
  for (const { kind, stored, counted } of rows) expect([kind, stored]).toEqual([kind, counted]);
}
