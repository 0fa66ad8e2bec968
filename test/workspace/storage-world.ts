// An account whose storage tests limit, fill and count.
import { afterAll, beforeAll, beforeEach, expect } from "vitest";
import { writeStorageLimits } from "../../src/base/database/storage.ts";
import { STORAGE_KINDS, type StorageKind, type StorageLimits } from "../../src/base/model/storage.ts";
import { TRANSFER_LIMITS } from "../../src/http/limits.ts";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import type { TestDatabase } from "../support/database.ts";
import type { Asked, TestAccount, TestApi } from "../support/sealpost-api.ts";
import { documentsOf } from "./support/documents.ts";
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

/** What the rows are, counted anew, is what was added up as they came and went. */
export async function expectExact(): Promise<void> {
  const { rows } = await database.pool.query<{ kind: string; stored: number; counted: number }>(
    `with counted (kind, user_id, bytes) as (
       select 'documents', uploaded_by, 1024 + case when has_content then file_size else 0 end
         from workspace.documents where account_id = $1
       union all select 'documents', owner_id, 1024 from workspace.spaces where account_id = $1
       union all select 'documents', created_by, 1024 from workspace.folders where account_id = $1
       union all select case when is_reserved then 'documents' else 'leftovers' end, user_id,
           bytes + case when is_reserved then 0 else 1024 end
         from workspace.loose_objects where account_id = $1
       union all select 'pages', created_by, 1024 + octet_length(markdown) from workspace.pages where account_id = $1
       union all select 'pages', published_by, 1024 + octet_length(markdown) + octet_length(html)
         from workspace.page_versions where account_id = $1
       union all select 'pages', created_by, 1024 from workspace.page_links where account_id = $1
       union all select 'workflows', created_by, 1024 + octet_length(draft::text) from workspace.workflows
         where account_id = $1
       union all select 'workflows', created_by, 1024 + octet_length(definition::text)
         from workspace.workflow_versions where account_id = $1
       union all select 'runs', requested_by, 1024 + octet_length(input::text) from workspace.runs where account_id = $1
       union all select 'runs', r.requested_by, 1024 from workspace.node_runs as n
         join workspace.runs as r on r.id = n.run_id where n.account_id = $1
       union all select 'runs', r.requested_by, 256 + octet_length(item::text) from workspace.node_items as n
         join workspace.runs as r on r.id = n.run_id where n.account_id = $1
     ), summed as (
       select * from counted union all select kind, $1, bytes from counted
     )
     select kind, s.bytes::float8 as stored, coalesce(sum(c.bytes), 0)::float8 as counted
     from workspace.storage as s left join summed as c using (kind, user_id)
     where s.account_id = $1 group by kind, user_id, s.bytes`,
    [account.accountId],
  );
  for (const { kind, stored, counted } of rows) expect([kind, stored]).toEqual([kind, counted]);
}
