import type { ClientBase, Pool } from "pg";
import { requireSecretsKey } from "../base/database/sealing.ts";
import { timeText } from "../base/database/time-text.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { type GivenHeaders, headersAfter, sealHeaders, unsealHeaders } from "./endpoint-headers.ts";
import { type Endpoint, HELD_COUNTED_MAX } from "./endpoint-schema.ts";

// A certificate of a host that the endpoint was at before is not its own. URLs are in their normal form.
const certificate = (column: string) => `(
  select ${timeText(`c.${column}`)} from sealpost.endpoint_certificates as c
  where c.account_id = $1 and c.host = split_part(url, '/', 3))`;
const COLUMNS = `url, ${timeText("created_at")} as created_at, ${timeText("updated_at")} as updated_at,
  ${timeText("paused_at")} as paused_at, (
  select count(*)::integer from (
    select from sealpost.held_deliveries as h where h.account_id = $1 limit ${HELD_COUNTED_MAX}
  ) as h) as held, case when sends_references then 'reference' else 'full' end as payload,
  forgets_after_success as forget_after_success,
  case when signs_standard then array['extract', 'standard'] else array['extract'] end as signature_schemes,
  sealed_headers as "sealedHeaders", ${certificate("ends_at")} as certificate_expires_at,
  ${certificate("seen_at")} as certificate_first_seen_at`;

/** With its headers as they are kept. */
export type StoredEndpoint = Omit<Endpoint, "headers"> & { readonly sealedHeaders: Buffer | null };

/** Absent: as it is, or as it is by default. */
export type EndpointOptions = {
  readonly payload?: Endpoint["payload"] | undefined;
  readonly forgetsAfterSuccess?: boolean | undefined;
  readonly signsStandard?: boolean | undefined;
  /** Null: none. */
  readonly sealedHeaders?: Buffer | null | undefined;
};

/**
 * Sets the account's endpoint, or changes it. `url` is the normal form of a URL that the target rules allow. Null: the
 * options exclude each other, and nothing has changed.
 */
export async function setEndpoint(
  database: ClientBase | Pool,
  accountId: string,
  url: string,
  { payload, forgetsAfterSuccess, signsStandard, sealedHeaders }: EndpointOptions = {},
): Promise<StoredEndpoint | null> {
  const { rows } = await database.query<StoredEndpoint>(
    `insert into sealpost.endpoints as e
       (account_id, url, sends_references, forgets_after_success, signs_standard, sealed_headers)
     select $1, $2, coalesce($3, false), coalesce($4, false), coalesce($5, false), $6
     where $3 is not true or $4 is not true
     on conflict (account_id) do update
     set url = excluded.url, updated_at = greatest(now(), e.updated_at + interval '1 ms'),
       sends_references = coalesce($3, e.sends_references),
       forgets_after_success = coalesce($4, e.forgets_after_success),
       signs_standard = coalesce($5, e.signs_standard),
       sealed_headers = case when $7 then $6 else e.sealed_headers end
     where not (coalesce($3, e.sends_references) and coalesce($4, e.forgets_after_success))
     returning ${COLUMNS}`,
    [
      accountId,
      url,
      payload && payload === "reference",
      forgetsAfterSuccess,
      signsStandard,
      sealedHeaders,
      sealedHeaders !== undefined,
    ],
  );
  return rows[0] ?? null;
}

/** What a request says of an endpoint, beside its URL. */
export type EndpointChange = Omit<EndpointOptions, "sealedHeaders"> & {
  readonly headers?: GivenHeaders | undefined;
  /** Its `updated_at` that this was made of; absent: whatever it is. */
  readonly expectedUpdatedAt?: string | undefined;
};

/** The endpoint is another than it was when its change was made. */
export class EndpointChanged extends Error {
  override readonly name = "EndpointChanged";
}

/**
 * The same, with the headers that follow from those it has. `findSecretsKey` is asked only where there are any.
 * @throws HeaderValueMissing
 * @throws EndpointChanged
 */
export async function changeEndpoint(
  tx: ClientBase,
  accountId: string,
  url: string,
  { headers: given, expectedUpdatedAt: expected, ...options }: EndpointChange,
  findSecretsKey: () => Promise<SecretsKey>,
): Promise<{ readonly endpoint: StoredEndpoint | null; readonly previousUrl: string | undefined }> {
  // Nobody else changes it before this transaction has ended.
  await tx.query("select from sealpost.endpoints where account_id = $1 for update", [accountId]);
  const before = await findEndpoint(tx, accountId);
  if (expected !== undefined && before?.updated_at !== expected) throw new EndpointChanged();
  const { url: previousUrl } = before ?? {};
  // What names every value needs none of before, which then need not open.
  const isWhole = given?.every(({ value }) => value !== undefined) === true;
  const sealedHeaders = isWhole ? null : (before?.sealedHeaders ?? null);
  if (given === undefined && sealedHeaders === null)
    return { endpoint: await setEndpoint(tx, accountId, url, options), previousUrl };
  const secretsKey = await findSecretsKey();
  await requireSecretsKey(tx, secretsKey);
  const headers = headersAfter(unsealHeaders(sealedHeaders, url, accountId, secretsKey), given);
  const sealed = sealHeaders(headers, url, accountId, secretsKey);
  return {
    endpoint: await setEndpoint(tx, accountId, url, { ...options, sealedHeaders: sealed }),
    previousUrl,
  };
}

/** What the URLs of references begin with. They have no host where the installation does not know its own. */
export async function writeAnalysesUrl(pool: Pool, publicUrl: string | null): Promise<void> {
  await pool.query("update sealpost.settings set analyses_url = $1 where analyses_url <> $1", [
    `${publicUrl ?? ""}/v1/analyses/`,
  ]);
}

/** Null: the account has none. */
export async function findEndpoint(
  database: ClientBase | Pool,
  accountId: string,
): Promise<StoredEndpoint | null> {
  const { rows } = await database.query<StoredEndpoint>({
    name: "find_endpoint",
    text: `select ${COLUMNS} from sealpost.endpoints where account_id = $1`,
    values: [accountId],
  });
  return rows[0] ?? null;
}

/** False: there was none. */
export async function removeEndpoint(database: ClientBase | Pool, accountId: string): Promise<boolean> {
  const { rowCount } = await database.query("delete from sealpost.endpoints where account_id = $1", [
    accountId,
  ]);
  return rowCount === 1;
}

/** Rows of everybody's that a pause looks at before it answers; the leader looks at the rest. */
const LOOKED_AT_MAX = 10_000;

/**
 * From now on, nothing more of the account's endpoint is started; what waits, and what comes, is held: see
 * sql/0010_delivery.sql. An endpoint that is paused already stays as it is. False: there is none.
 */
export const pauseEndpoint = changing(`pause_endpoint($1, ${LOOKED_AT_MAX})`);
/** From now on, what is held is let go, at the leader's pace. False: there is no endpoint. */
export const resumeEndpoint = changing("resume_endpoint($1)");

function changing(call: string) {
  return async (database: ClientBase | Pool, accountId: string): Promise<boolean> => {
    // Locked although nothing may change: what the answer then tells of the endpoint is what was asked for.
    const text = `select sealpost.${call} as "isThere"
      from (select from sealpost.endpoints where account_id = $1 for update) as locked`;
    const { rows } = await database.query<{ isThere: boolean }>(text, [accountId]);
    return rows[0]?.isThere ?? false;
  };
}

/** Holds what a claim under this token has leased of paused endpoints; nothing of it was posted. `at` null: now. */
export const holdLeased = givingBack("hold_leased");
/** The same of what it has leased for URLs of their own that are closed: it goes to the endpoint. */
export const sendToEndpoint = givingBack("send_to_endpoint");

function givingBack(name: "hold_leased" | "send_to_endpoint") {
  const text = `select sealpost.${name}($1::uuid[], $2::uuid, coalesce($3::timestamptz, now()))`;
  return async (pool: Pool, deliveryIds: readonly string[], leaseToken: string, at: Date | null) => {
    await pool.query({ name, text, values: [`{${deliveryIds.join(",")}}`, leaseToken, at] });
  };
}

/** Held deliveries of one account, and of all accounts, that a step lets go: 100 and 1,000 a second. */
const ACCOUNT_PER_STEP_MAX = 20;
const PER_STEP_MAX = 200;

export type HoldsStep = {
  readonly released: number;
  /** Abandoned, because their analyses are no longer kept. */
  readonly expired: number;
  /** There is more to be looked through for an endpoint that was just paused. */
  readonly isGathering: boolean;
};

/** One paced step of what is held. `at` null: now. */
export async function advanceHolds(
  database: Pool | ClientBase,
  analysisRetentionMs: number,
  at: Date | null,
  accountMax = ACCOUNT_PER_STEP_MAX,
  itemsMax = PER_STEP_MAX,
): Promise<HoldsStep> {
  const { rows } = await database.query<HoldsStep>({
    name: "advance_holds",
    text: `select released, expired, is_gathering as "isGathering" from sealpost.advance_holds(
      $1::float8 * interval '1 millisecond', coalesce($2::timestamptz, now()), $3, $4)`,
    values: [analysisRetentionMs, at, accountMax, itemsMax],
  });
  return rows[0]!;
}
