import type { ClientBase, Pool } from "pg";
import type { CallLease, ClaimState, IdempotencyClaim, StoredResponse } from "../model/idempotency.ts";
import { seal, unseal } from "./sealing.ts";

type Row = {
  fingerprint: Buffer;
  status: number | null;
  headers: Record<string, string> | null;
  body: Buffer | null;
  is_sealed: boolean;
  is_held: boolean;
};

/**
 * Claims until the transaction ends. Never waits for a claim that another open transaction holds: hence the advisory
 * lock, where an insert would wait.
 *
 * @throws when a role that is not ours holds the lock, naming it
 */
export async function claimIdempotencyKey(
  client: ClientBase,
  claim: IdempotencyClaim,
  secretsKey: Uint8Array,
): Promise<ClaimState> {
  const { rows } = await client.query<{ lock: string; got: boolean }>({
    name: "lock_idempotency_key",
    text: `select lock::text, pg_try_advisory_xact_lock(lock) as got
           from (select hashtextextended($1 || ' ' || $2 || ' ' || $3, 1) as lock) as named`,
    values: [claim.accountId, claim.keyId, claim.idempotencyKey],
  });
  const { lock, got } = rows[0]!;
  // A separate statement, so that it sees what the previous holder committed. A stored response is final, with or
  // without the lock.
  const row = await findRow(client, claim);
  if (row !== undefined && row.status !== null) {
    const body = row.body !== null && row.is_sealed ? open(row.body, claim, secretsKey) : row.body;
    const response = { status: row.status, headers: row.headers ?? {}, body, holdsSecret: row.is_sealed };
    return { state: "completed", fingerprint: row.fingerprint, response };
  }
  if (!got) await refuseStrangersLock(client, lock);
  return { state: got && row?.is_held !== true ? "claimed" : "in_progress" };
}

async function findRow(client: ClientBase, claim: IdempotencyClaim): Promise<Row | undefined> {
  const { rows } = await client.query<Row>({
    name: "find_idempotency_key",
    text: `select fingerprint, status, headers, body, is_sealed, status is null and claim_until > now() as is_held
           from sealpost.idempotency_keys where account_id = $1 and key_id = $2 and idempotency_key = $3`,
    values: keyOf(claim),
  });
  return rows[0];
}

/**
 * Any role that connects can hold an advisory lock. Which one a key has only shows while it is locked, so this takes
 * somebody who watches us; waiting for them as for a request of ours would never end, and nobody would know why.
 */
async function refuseStrangersLock(client: ClientBase, lock: string): Promise<void> {
  const { rows } = await client.query<{ pid: number; role: string }>(
    `select pid, usename as role
     from pg_locks join pg_stat_activity using (pid)
     where locktype = 'advisory' and granted and objsubid = 1
       and database = (select oid from pg_database where datname = current_database())
       and classid::bigint << 32 | objid::bigint = $1::bigint and not pg_has_role(usesysid, current_user, 'member')`,
    [lock],
  );
  const [holder] = rows;
  if (holder === undefined) return;
  throw new Error(
    `The role ${holder.role} (pid ${holder.pid}) holds the advisory lock ${lock} of an idempotency key. End its ` +
      "session, and ask its owner what it does in this database.",
  );
}

/** Claims beyond the transaction, for a call to another system. */
export async function claimIdempotentCall(
  client: ClientBase,
  claim: IdempotencyClaim,
  lease: CallLease,
  secretsKey: Uint8Array,
): Promise<ClaimState> {
  const state = await claimIdempotencyKey(client, claim, secretsKey);
  if (state.state !== "claimed") return state;
  await client.query(
    `insert into sealpost.idempotency_keys
       (account_id, key_id, idempotency_key, operation_key, fingerprint, claim_token, claim_until)
     values ($1, $2, $3, $4, $5, $6, now() + $7::float8 * interval '1 millisecond')
     on conflict (account_id, key_id, idempotency_key) do update
     set operation_key = excluded.operation_key, fingerprint = excluded.fingerprint, created_at = excluded.created_at,
       claim_token = excluded.claim_token, claim_until = excluded.claim_until`,
    [...keyOf(claim), claim.operationKey, claim.fingerprint, lease.token, lease.leaseMs],
  );
  return state;
}

/** Stores the response in the transaction of the effect. */
export async function storeResponse(
  client: ClientBase,
  claim: IdempotencyClaim,
  response: StoredResponse,
  secretsKey: Uint8Array,
): Promise<void> {
  await client.query({
    name: "store_idempotent_answer",
    text: `insert into sealpost.idempotency_keys
        (account_id, key_id, idempotency_key, operation_key, fingerprint, status, headers, body, is_sealed)
      values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
      on conflict (account_id, key_id, idempotency_key) do update
      set operation_key = excluded.operation_key, fingerprint = excluded.fingerprint, created_at = excluded.created_at,
        claim_token = null, claim_until = null, status = excluded.status, headers = excluded.headers,
        body = excluded.body, is_sealed = excluded.is_sealed`,
    values: [
      ...keyOf(claim),
      claim.operationKey,
      claim.fingerprint,
      ...responseColumns(claim, response, secretsKey),
    ],
  });
}

/** The same for a call; does nothing when the claim is no longer held under `token`. */
export async function storeCallResponse(
  client: ClientBase,
  claim: IdempotencyClaim,
  token: string,
  response: StoredResponse,
  secretsKey: Uint8Array,
): Promise<void> {
  await client.query(
    `update sealpost.idempotency_keys
     set claim_token = null, claim_until = null, status = $5, headers = $6, body = $7, is_sealed = $8
     where account_id = $1 and key_id = $2 and idempotency_key = $3 and claim_token = $4`,
    [...keyOf(claim), token, ...responseColumns(claim, response, secretsKey)],
  );
}

/** Releases the claim of a failed call, so the request can be retried. */
export async function releaseIdempotentCall(
  client: ClientBase,
  claim: IdempotencyClaim,
  token: string,
): Promise<void> {
  await client.query(
    `delete from sealpost.idempotency_keys
     where account_id = $1 and key_id = $2 and idempotency_key = $3 and claim_token = $4`,
    [...keyOf(claim), token],
  );
}

/** Deletes keys older than the retention, at most `rowsMax` of them. Returns how many. */
export async function forgetIdempotencyKeys(
  pool: Pool,
  retentionMs: number,
  rowsMax: number,
): Promise<number> {
  const { rowCount } = await pool.query(
    `with old as (
       select account_id, key_id, idempotency_key from sealpost.idempotency_keys
       where created_at < now() - $1::float8 * interval '1 millisecond' limit $2 for update skip locked
     )
     delete from sealpost.idempotency_keys as k using old
     where k.account_id = old.account_id and k.key_id = old.key_id and k.idempotency_key = old.idempotency_key`,
    [retentionMs, rowsMax],
  );
  return rowCount ?? 0;
}

function keyOf(claim: IdempotencyClaim): unknown[] {
  return [claim.accountId, claim.keyId, claim.idempotencyKey];
}

function responseColumns(claim: IdempotencyClaim, response: StoredResponse, secretsKey: Uint8Array) {
  const isSealed = response.holdsSecret && response.body !== null;
  const body = isSealed ? seal(response.body!.toString("utf8"), secretsKey, ownerOf(claim)) : response.body;
  return [response.status, JSON.stringify(response.headers), body, isSealed];
}

function open(body: Buffer, claim: IdempotencyClaim, secretsKey: Uint8Array): Buffer {
  return Buffer.from(unseal(body, secretsKey, ownerOf(claim)));
}

function ownerOf(claim: IdempotencyClaim) {
  return { accountId: claim.accountId, id: `${claim.keyId}/${claim.idempotencyKey}` };
}
