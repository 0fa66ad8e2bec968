import type { Pool } from "pg";

/** The certificate that an account's endpoint showed. `expiresAtMs`: ms since the epoch. */
export type SeenCertificate = {
  readonly accountId: string;
  /** Host name, with the port unless it is 443. */
  readonly host: string;
  readonly expiresAtMs: number;
};

/** Notes each account's last one; nothing is written where it is the one that was known. One per account. */
export async function noteCertificates(pool: Pool, seen: readonly SeenCertificate[]): Promise<void> {
  const ordered = [...seen].sort((one, other) => (one.accountId < other.accountId ? -1 : 1));
  await pool.query({
    name: "note_certificates",
    text: `insert into sealpost.endpoint_certificates as known (account_id, host, ends_at)
      select account_id, host, to_timestamp(ends_at_ms / 1000)
      from unnest($1::uuid[], $2::text[], $3::float8[]) as seen (account_id, host, ends_at_ms)
      order by account_id
      on conflict (account_id) do update set host = excluded.host, ends_at = excluded.ends_at, seen_at = now()
      where (known.host, known.ends_at) is distinct from (excluded.host, excluded.ends_at)`,
    values: [
      ordered.map(({ accountId }) => accountId),
      ordered.map(({ host }) => host),
      ordered.map(({ expiresAtMs }) => expiresAtMs),
    ],
  });
}

export type ExpiringCertificate = SeenCertificate & {
  /** The account's endpoint now. */
  readonly endpointUrl: string;
  /** The database's time. */
  readonly nowMs: number;
};

/** Those that end within `withinMs` and that nobody was told of, the first to end first. */
export async function findExpiringCertificates(
  pool: Pool,
  withinMs: number,
  rowsMax: number,
): Promise<readonly ExpiringCertificate[]> {
  const { rows } = await pool.query<ExpiringCertificate>({
    name: "find_expiring_certificates",
    text: `select c.account_id as "accountId", c.host, (extract(epoch from c.ends_at) * 1000)::float8 as "expiresAtMs",
        e.url as "endpointUrl", (extract(epoch from now()) * 1000)::float8 as "nowMs"
      from sealpost.endpoint_certificates as c join sealpost.endpoints as e using (account_id)
      where c.ends_at > now() and c.ends_at <= now() + $1::float8 * interval '1 millisecond'
        and not exists (
          select from sealpost.notices as n
          where n.account_id = c.account_id and n.kind = 'certificate.expiring'
            and n.subject = c.host || ' ' || (extract(epoch from c.ends_at) * 1000)::bigint)
      order by c.ends_at
      limit $2`,
    values: [withinMs, rowsMax],
  });
  return rows;
}
