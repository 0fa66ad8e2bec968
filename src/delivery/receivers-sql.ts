import type { ClientBase, Pool } from "pg";
import { notErased } from "../base/database/account-rows.ts";
import type { AnsweredLane, LaneKey, RestingLane } from "./lane.ts";

/** Of one account; more receivers than that are tried like new ones after a restart. */
const LANES_PER_ACCOUNT_MAX = 10_000;
/** A receiver that has not answered for so long is tried like a new one. */
const REMEMBERED_DAYS = 30;
const FORGOTTEN_PER_STEP = 10_000;

/** Those of the lanes whose receiver has answered at some time. */
export async function findAnsweredLanes(
  pool: Pool,
  lanes: readonly LaneKey[],
): Promise<readonly AnsweredLane[]> {
  const { rows } = await pool.query<AnsweredLane>({
    name: "find_answered_lanes",
    text: `select a.account_id as "accountId", a.lane, a.suspended_at is not null as "isSuspended"
      from unnest($1::uuid[], $2::bigint[]) as asked (account_id, lane)
      join sealpost.answered_lanes as a
        on a.account_id = any (array[asked.account_id]) and a.lane = any (array[asked.lane])`,
    values: arraysOf(lanes),
  });
  return rows;
}

/**
 * Remembers that these receivers have answered, and which of them are suspended; where that is not known, what was
 * remembered stays. Written in one order by everybody, so that nobody deadlocks.
 */
export async function rememberAnsweredLanes(pool: Pool, lanes: readonly AnsweredLane[]): Promise<void> {
  await pool.query({
    name: "remember_answered_lanes",
    text: `with news as (
        select distinct given.*, a.suspended_at as known
        from unnest($1::uuid[], $2::bigint[], $3::boolean[]) as given (account_id, lane, suspended)
        left join sealpost.answered_lanes as a
          on a.account_id = any (array[given.account_id]) and a.lane = any (array[given.lane])
        where (a.answered_at >= now() - interval '1 day'
          and (suspended is null or suspended = (suspended_at is not null))) is not true
      )
      insert into sealpost.answered_lanes (account_id, lane, suspended_at)
      select account_id, lane, case when suspended is null then known when suspended then coalesce(known, now()) end
      from news where ${notErased("account_id")}
      order by account_id, lane
      on conflict (account_id, lane) do update
        set answered_at = excluded.answered_at, suspended_at = excluded.suspended_at`,
    values: [...arraysOf(lanes), lanes.map(({ isSuspended }) => isSuspended)],
  });
}

/** Returns how many were forgotten: those of long ago, and an account's oldest beyond what is kept of one. */
export async function forgetAnsweredLanes(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ forgotten: number }>(
    "select sealpost.forget_answered_lanes($1 * interval '1 day', $2, $3) as forgotten",
    [REMEMBERED_DAYS, LANES_PER_ACCOUNT_MAX, FORGOTTEN_PER_STEP],
  );
  return rows[0]!.forgotten;
}

function arraysOf(lanes: readonly LaneKey[]): [string[], string[]] {
  return [lanes.map(({ accountId }) => accountId), lanes.map(({ lane }) => lane)];
}

/** Returns how many were forgotten: those whose proof is over, and those that nobody waits for. */
export async function forgetReceivers(pool: Pool): Promise<number> {
  const text = "select sealpost.forget_receivers($1) as forgotten";
  return (await pool.query<{ forgotten: number }>(text, [FORGOTTEN_PER_STEP])).rows[0]!.forgotten;
}

/** Those of the receivers that no lane rests for any more: it is proven, or the endpoint has left it. */
export async function findEndedRests(
  pool: Pool,
  resting: readonly RestingLane[],
): Promise<readonly string[]> {
  const { rows } = await pool.query<{ receiver: string }>({
    name: "find_ended_rests",
    text: `select distinct receiver from unnest($1::text[], $2::bigint[]) as asked (receiver, lane)
      cross join lateral (
        select split_part(receiver, ' ', 1)::uuid as account, split_part(receiver, ' ', 2) as origin) as asked_of
      where exists (
        select from sealpost.receivers as r
        where r.account_id = any (array[account]) and r.origin = any (array[asked_of.origin]) and r.next_at is null
          and r.proven_at > now() - interval '30 days')
      or lane = sealpost.lane(account, null) and not exists (
        select from sealpost.endpoints as e
        where e.account_id = any (array[account]) and (sealpost.origin(e.url) = asked_of.origin
          or not sealpost.is_normalized_origin(sealpost.origin(e.url))))`,
    values: [resting.map(({ receiver }) => receiver), resting.map(({ lane }) => lane)],
  });
  return rows.map(({ receiver }) => receiver);
}

/** In an upgrade: receivers that succeeded of late need no other proof. Killed, it goes on when called again. */
export async function proveFromLog(database: Pool | ClientBase): Promise<void> {
  const step = "select sealpost.prove_from_log() as goes_on";
  while ((await database.query<{ goes_on: boolean }>(step)).rows[0]!.goes_on);
}

/** The newest; one refusal in a hundred looks for more. */
const REFUSALS_PER_ACCOUNT_MAX = 10_000;

/** The one form of all URLs that ask for the same: no empty query, nothing in the path encoded that may be plain. */
export function requestForm(url: string): string {
  const parsed = new URL(url);
  parsed.pathname = parsed.pathname.replaceAll(/%[0-9a-f]{2}/gi, (byte) => {
    const character = String.fromCharCode(Number.parseInt(byte.slice(1), 16));
    return /[!-~]/.test(character) && !/[/\\?#%]/.test(character) ? character : byte.toUpperCase();
  });
  if (parsed.search === "") parsed.search = "";
  return parsed.href;
}

/** Its receiver wants nothing more from the account at this URL. */
export async function refuseUrl(pool: Pool, accountId: string, url: string): Promise<void> {
  const { rows } = await pool.query<{ isDrawn: boolean }>(
    `insert into sealpost.refusals (account_id, url) select $1::uuid, $2 where ${notErased("$1")}
     on conflict (account_id, url) do update set refused_at = now() returning random() < 0.01 as "isDrawn"`,
    [accountId, requestForm(url)],
  );
  if (!rows[0]?.isDrawn) return;
  await pool.query(
    `delete from sealpost.refusals where account_id = $1 and url in (
       select url from sealpost.refusals where account_id = $1 order by refused_at desc offset $2)`,
    [accountId, REFUSALS_PER_ACCOUNT_MAX],
  );
}

/** SQL: whether the receiver at the URL, which is in its `requestForm`, refuses the account. */
export const refusing = (accountId: string, url: string) => `exists (
  select from sealpost.refusals as r where r.account_id = any (array[${accountId}]) and r.url = any (array[${url}])
    and coalesce(r.lifted_at < r.refused_at, true))`;

const PROVEN = "proven_at > now() - interval '30 days'";

/** SQL: the origin of the URL, or of the endpoint if that is null. */
const originOf = (accountId: string, webhookUrl: string) => `sealpost.origin(coalesce(${webhookUrl}, (
  select e.url from sealpost.endpoints as e where e.account_id = ${accountId})))`;

/**
 * SQL: whether the receiver there rests between its turns; where its origin is not normalized, nor proven as it is
 * spelled, whether any of the account's does.
 */
export function restingBetweenTurns(accountId: string, webhookUrl: string): string {
  const origin = originOf(accountId, webhookUrl);
  const receiver = `select from sealpost.receivers as r where r.account_id = ${accountId}`;
  const [its, rests] = [`r.origin = any (array[${origin}])`, "r.next_at > now() - interval '1 minute'"];
  return `(exists (${receiver} and ${its} and ${rests}) or not sealpost.is_normalized_origin(${origin})
    and exists (${receiver} and ${rests}) and not exists (${receiver} and ${its} and r.next_at is null))`;
}

/** SQL: for how many seconds the receiver there has been proven; null: it is not, as it is spelled. */
export const provenForSeconds = (accountId: string, webhookUrl: string) => `(
  select extract(epoch from now() - r.proven_since)::float8 from sealpost.receivers as r
  where r.account_id = ${accountId} and r.origin = any (array[${originOf(accountId, webhookUrl)}])
    and r.next_at is null and r.${PROVEN})`;

export async function isRefusing(
  database: Pool | ClientBase,
  accountId: string,
  url: string,
): Promise<boolean> {
  const { rows } = await database.query<{ is: boolean }>(`select ${refusing("$1::uuid", "$2")} as is`, [
    accountId,
    requestForm(url),
  ]);
  return rows[0]!.is;
}

/** False: not yet, as it was lifted less than a day ago. `isStaff`: they may at any time. */
export async function liftRefusal(
  database: ClientBase,
  accountId: string,
  url: string,
  isStaff: boolean,
): Promise<boolean> {
  const { rowCount } = await database.query(
    `update sealpost.refusals set lifted_at = now()
     where account_id = $1 and url = $2 and ($3 or coalesce(lifted_at < now() - interval '1 day', true))`,
    [accountId, requestForm(url), isStaff],
  );
  return rowCount === 1;
}

/** What an attempt at a receiver that has proven nothing asks for. */
export type TurnRequest = {
  readonly accountId: string;
  readonly origin: string;
  /** An IP address, of which a /64 counts as one, or the host name where a proxy looks it up. */
  readonly address: string;
  readonly isFirst: boolean;
  /** An earlier address of the same attempt did not accept the connection. */
  readonly isFurther: boolean;
  /** How long the attempt may take. */
  readonly leaseMs: number;
};

/** From a turn at a receiver that has proven nothing to the next: ten POSTs in any 60 s, however late the first is. */
export const RECEIVER_EVERY_MS = 6_700;
/** From an attempt at such a receiver to the next at the same address, of any account: 60 in any 60 s. */
const ADDRESS_EVERY_MS = 1_050;

/** `waitMs` null: it may connect now. `isAsked` false: the database was not asked, as too many are. */
export type Turn = { readonly isProven: boolean; readonly waitMs: number | null; readonly isAsked?: boolean };

/** Whether the attempt may connect now, and if so takes the turn: sql/0010_delivery.sql. */
export async function takeTurn(pool: Pool, asked: TurnRequest): Promise<Turn> {
  const { rows } = await pool.query<Turn>({
    name: "take_turn",
    text: `select is_proven as "isProven", wait_ms as "waitMs"
      from sealpost.take_turn($1, $2, $3, $4, $5, $6::float8 * interval '1 ms', $7::float8 * interval '1 ms',
        $8::float8 * interval '1 ms')`,
    values: [
      asked.accountId,
      asked.origin,
      asked.address,
      asked.isFirst,
      asked.isFurther,
      asked.leaseMs,
      RECEIVER_EVERY_MS,
      ADDRESS_EVERY_MS,
    ],
  });
  return rows[0]!;
}

/** The attempt is over; whether it was a 2xx, which proves the receiver. `url` as the account spells it. */
export async function endTurn(pool: Pool, accountId: string, url: string, isProof: boolean): Promise<void> {
  await pool.query({
    name: "end_turn",
    // What a server that crashes forgets of it, the next POST tells again.
    text: "select set_config('synchronous_commit', 'off', true), sealpost.end_turn($1, $2, $3, $4)",
    values: [accountId, new URL(url).origin, url, isProof],
  });
}

export async function isProven(pool: Pool, accountId: string, origin: string): Promise<boolean> {
  const text = `select from sealpost.receivers where account_id = $1 and origin = $2 and ${PROVEN}`;
  return (await pool.query(text, [accountId, origin])).rowCount === 1;
}

/** What an account's URL means, in its `requestForm`. */
export type Meant = { readonly accountId: string; readonly origin: string; readonly url: string };

/** As of a claim. `provenAtMs` null: it is not proven. */
export type FoundReceiver = {
  readonly provenAtMs: number | null;
  readonly provenSinceMs: number | null;
  readonly isRefused: boolean;
};

/** The receivers of URLs that are spelled otherwise than claims look them up, in the same order. */
export async function findReceivers(pool: Pool, meant: readonly Meant[]): Promise<readonly FoundReceiver[]> {
  const { rows } = await pool.query<FoundReceiver>({
    name: "find_receivers",
    text: `select extract(epoch from proven_at)::float8 * 1000 as "provenAtMs",
        extract(epoch from proven_since)::float8 * 1000 as "provenSinceMs",
        ${refusing("meant.account_id", "meant.url")} as "isRefused"
      from unnest($1::uuid[], $2::text[], $3::text[]) with ordinality as meant (account_id, origin, url, place)
      left join lateral (
        select proven_at, proven_since from sealpost.receivers as r
        where r.account_id = any (array[meant.account_id]) and r.origin = any (array[meant.origin]) and ${PROVEN}
        limit 1
      ) as r on true
      order by place`,
    values: [
      meant.map(({ accountId }) => accountId),
      meant.map(({ origin }) => origin),
      meant.map(({ url }) => url),
    ],
  });
  return rows;
}
