import type { ClientBase, Pool, QueryConfig } from "pg";
import type {
  CallLease,
  ClaimState,
  CompletedClaim,
  CountedAnswer,
  IdempotencyClaim,
  StoredResponse,
} from "../model/idempotency.ts";
import type { SecretsKey } from "../model/secrets-key.ts";
import { seal, unseal } from "./sealing.ts";

/** The SQLSTATE that refuses a write whose key was revoked meanwhile: see sql/0009_accounts.sql. */
export const KEY_REVOKED_STATE = "SP010";

/** A row with its entries in indexes. */
export const ANSWER_ROW_BYTES = 1_024;

const KEY = ["accountId", "keyId", "idempotencyKey"] as const;
const keyOf = (claim: IdempotencyClaim): unknown[] => KEY.map((column) => claim[column]);

/** The claim of a call, as long as it is held under its token. */
const HELD = "account_id = $1 and key_id = $2 and idempotency_key = $3 and claim_token = $4";

/**
 * Writes an empty message to the WAL, so that the commit waits for the synchronous standby, and with it for everything
 * committed before. A transaction that only reads does not wait: it could return an answer whose own commit was
 * interrupted by a restart while it waited, and which a failover would lose.
 */
const WAIT_FOR_STANDBY = "select pg_logical_emit_message(true, 'sealpost', '')";

type Row = {
  /** A bigint as text. */
  lock: string;
  is_ours: boolean;
  is_held: boolean;
  fingerprint: Buffer;
  status: number | null;
  headers: Record<string, string> | null;
  body: Buffer | null;
  is_sealed: boolean;
  moved_to: string | null;
  is_key_good: boolean;
};

/**
 * Claims until the transaction ends; the claims have different keys. Never waits for a claim that another open
 * transaction holds.
 *
 * @returns states in the order of the claims
 * @throws when a role that is not ours holds a lock, naming it
 */
export async function claimIdempotencyKeys(
  client: Pool | ClientBase,
  claims: readonly IdempotencyClaim[],
  secretsKey: SecretsKey,
): Promise<readonly ClaimState[]> {
  const { rows } = await client.query<Row>({
    name: "claim_idempotency_keys",
    text: `select lock, is_ours, is_held, fingerprint, status, headers, body, is_sealed, moved_to, is_key_good
           from sealpost.claim_idempotency_keys($1::uuid[], $2::uuid[], $3::text[]) order by n`,
    values: KEY.map((column) => claims.map((claim) => claim[column])),
  });
  const stranger = rows.find(
    ({ status, is_ours, moved_to }) => status === null && !is_ours && moved_to === null,
  );
  if (stranger !== undefined) await refuseStrangersLock(client, stranger.lock);
  if (rows.some(({ status }) => status !== null)) await client.query(WAIT_FOR_STANDBY);
  return rows.map((row, index) => stateOf(row, claims[index]!, secretsKey));
}

/** One of them. */
export async function claimIdempotencyKey(
  client: ClientBase,
  claim: IdempotencyClaim,
  secretsKey: SecretsKey,
): Promise<ClaimState> {
  const [state] = await claimIdempotencyKeys(client, [claim], secretsKey);
  return state!;
}

function stateOf(row: Row, claim: IdempotencyClaim, secretsKey: SecretsKey): ClaimState {
  const { status, headers, is_sealed: holdsSecret, moved_to: cell } = row;
  if (!row.is_key_good) return { state: "no_key" };
  if (cell !== null) return { state: "moved", cell };
  if (status === null) return { state: row.is_ours && !row.is_held ? "claimed" : "in_progress" };
  const open = (body: Buffer) => Buffer.from(unseal(body, secretsKey, ownerOf(claim)));
  const body = row.body !== null && holdsSecret ? open(row.body) : row.body;
  const response = { status, headers: headers ?? {}, body, holdsSecret };
  return { state: "completed", fingerprint: row.fingerprint, response };
}

/**
 * Any role that connects can hold an advisory lock. Which one a key has only shows while it is locked, so this takes
 * somebody who watches us; waiting for them as for a request of ours would never end, and nobody would know why.
 */
async function refuseStrangersLock(client: Pool | ClientBase, lock: string): Promise<void> {
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

/** For a call to another system: counts from now on, so that who has no room is refused (SP009) before the work. */
export async function claimIdempotentCall(
  client: ClientBase,
  claim: IdempotencyClaim,
  lease: CallLease,
  counted: CountedAnswer,
  secretsKey: SecretsKey,
): Promise<ClaimState> {
  const state = await claimIdempotencyKey(client, claim, secretsKey);
  if (state.state !== "claimed") return state;
  await client.query(
    `insert into sealpost.idempotency_keys
       (account_id, key_id, idempotency_key, operation_key, fingerprint, claim_token, claim_until)
     select $1, $2, $3, $4, $5, $6, now() + $7::float8 * interval '1 millisecond'
     from sealpost.count_write($1, $2, $8, ${ANSWER_ROW_BYTES}, $9, $10)
     on conflict (account_id, key_id, idempotency_key) do update
     set operation_key = excluded.operation_key, fingerprint = excluded.fingerprint, created_at = excluded.created_at,
       claim_token = excluded.claim_token, claim_until = excluded.claim_until`,
    [
      ...[...keyOf(claim), claim.operationKey, claim.fingerprint, lease.token, lease.leaseMs],
      ...[counted.userId, counted.auditBytes, counted.isRefused],
    ],
  );
  return state;
}

/** In its effect's transaction, refused with it: no room for the account (SP009), the key is good no more (SP010). */
export function storingResponse(
  { claim, response, counted }: CompletedClaim,
  secretsKey: SecretsKey,
): QueryConfig {
  const { userId, auditBytes, isRefused } = counted;
  return {
    name: "store_answer",
    text: `insert into sealpost.idempotency_keys
        (account_id, key_id, idempotency_key, operation_key, fingerprint, status, headers, body, is_sealed)
      select $1, $2, $3, $4, $5, $6, $7, $8, $9 from sealpost.count_write($1, $2, $10, $11, $12, $13)
      on conflict (account_id, key_id, idempotency_key) do update
      set operation_key = excluded.operation_key, fingerprint = excluded.fingerprint, created_at = excluded.created_at,
        claim_token = null, claim_until = null, status = excluded.status, headers = excluded.headers,
        body = excluded.body, is_sealed = excluded.is_sealed`,
    values: [
      ...[...keyOf(claim), claim.operationKey, claim.fingerprint],
      ...responseColumns(claim, response, secretsKey),
      ...[userId, ANSWER_ROW_BYTES + (response.body?.length ?? 0), auditBytes, isRefused],
    ],
  };
}

/** Holds the claim of a call for longer; does nothing when it is no longer held under the token. */
export async function renewIdempotentCall(
  client: ClientBase,
  claim: IdempotencyClaim,
  { token, leaseMs }: CallLease,
): Promise<void> {
  await client.query(
    `update sealpost.idempotency_keys set claim_until = now() + $5::float8 * interval '1 millisecond' where ${HELD}`,
    [...keyOf(claim), token, leaseMs],
  );
}

/** The same for a call; false, and nothing is stored, when the claim is no longer held under `token`. */
export async function storeCallResponse(
  client: ClientBase,
  claim: IdempotencyClaim,
  token: string,
  response: StoredResponse,
  counted: CountedAnswer,
  secretsKey: SecretsKey,
): Promise<boolean> {
  const { userId, auditBytes, isRefused } = counted;
  const { rowCount } = await client.query(
    `update sealpost.idempotency_keys
     set claim_token = null, claim_until = null, status = $5, headers = $6, body = $7, is_sealed = $8
     from sealpost.count_write($1, $2, $9, $10, $11, $12)
     where ${HELD}`,
    [
      ...[...keyOf(claim), token, ...responseColumns(claim, response, secretsKey)],
      ...[userId, response.body?.length ?? 0, auditBytes, isRefused],
    ],
  );
  return rowCount === 1;
}

/** Releases the claim of a failed call, so the request can be retried. */
export async function releaseIdempotentCall(
  client: ClientBase,
  claim: IdempotencyClaim,
  token: string,
): Promise<void> {
  await client.query(`delete from sealpost.idempotency_keys where ${HELD}`, [...keyOf(claim), token]);
}

function responseColumns(claim: IdempotencyClaim, response: StoredResponse, secretsKey: SecretsKey) {
  const isSealed = response.holdsSecret && response.body !== null;
  const body = isSealed ? seal(response.body!.toString("utf8"), secretsKey, ownerOf(claim)) : response.body;
  return [response.status, JSON.stringify(response.headers), body, isSealed];
}

function ownerOf(claim: IdempotencyClaim) {
  return { accountId: claim.accountId, id: `${claim.keyId}/${claim.idempotencyKey}` };
}
