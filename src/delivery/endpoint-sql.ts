import type { ClientBase, Pool } from "pg";

export type Endpoint = {
  readonly url: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Null: it is not paused. */
  readonly pausedAt: Date | null;
  /** Deliveries that wait until they are let go; exact up to `HELD_COUNTED_MAX`. */
  readonly held: number;
  /** Of the certificate that it showed to a delivery last; null: none was seen. */
  readonly certificateExpiresAt: Date | null;
};

/** Counting so many takes some 100 ms. */
export const HELD_COUNTED_MAX = 1_000_000;

type Row = Omit<Endpoint, "certificateExpiresAt"> & { certificate: { host: string; endsAt: string } | null };

const COLUMNS = `url, created_at as "createdAt", updated_at as "updatedAt", paused_at as "pausedAt", (
  select count(*)::integer from (
    select from sealpost.held_deliveries as h where h.account_id = $1 limit ${HELD_COUNTED_MAX}
  ) as h) as held, (
  select json_build_object('host', c.host, 'endsAt', c.ends_at)
  from sealpost.endpoint_certificates as c where c.account_id = $1) as certificate`;

/** Sets the account's endpoint, or changes it. `url` is the normal form of a URL that the target rules allow. */
export async function setEndpoint(
  database: ClientBase | Pool,
  accountId: string,
  url: string,
): Promise<Endpoint> {
  const { rows } = await database.query<Row>(
    `insert into sealpost.endpoints (account_id, url) values ($1, $2)
     on conflict (account_id) do update set url = excluded.url, updated_at = now()
     returning ${COLUMNS}`,
    [accountId, url],
  );
  return fromRow(rows[0]!);
}

/** Null: the account has none. */
export async function findEndpoint(database: ClientBase | Pool, accountId: string): Promise<Endpoint | null> {
  const { rows } = await database.query<Row>({
    name: "find_endpoint",
    text: `select ${COLUMNS} from sealpost.endpoints where account_id = $1`,
    values: [accountId],
  });
  return rows[0] === undefined ? null : fromRow(rows[0]);
}

/** False: there was none. */
export async function removeEndpoint(database: ClientBase | Pool, accountId: string): Promise<boolean> {
  const { rowCount } = await database.query("delete from sealpost.endpoints where account_id = $1", [
    accountId,
  ]);
  return rowCount === 1;
}

function fromRow({ certificate, ...endpoint }: Row): Endpoint {
  // A host's that the endpoint was at before is not its own.
  const isOfThisHost = certificate?.host === new URL(endpoint.url).host;
  return { ...endpoint, certificateExpiresAt: isOfThisHost ? new Date(certificate.endsAt) : null };
}
