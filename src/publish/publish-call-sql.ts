/** A client in its transaction, or a pool. Spelled out, so that the pipeline's package needs no types of `pg`. */
export type PublishingDatabase = {
  query(text: string, values: unknown[]): Promise<{ readonly rows: readonly unknown[] }>;
};

export type Publication = {
  readonly accountId: string;
  /** The analysis's exact JSON text. */
  readonly analysis: string;
  /** Where this one goes; null or left out: the account's endpoint. */
  readonly webhookUrl?: string | null | undefined;
};

/** Why publishing was refused; the SQLSTATEs of sql/0005_publish.sql and sql/0010_delivery.sql by their codes. */
export const PUBLISH_REFUSAL_CODES = [
  "unknown_account",
  "invalid_analysis",
  "analysis_too_large",
  "target_refused",
  "analysis_conflict",
  "account_moved",
  "account_full",
  "invalid_request",
] as const;

export type PublishRefusalCode = (typeof PUBLISH_REFUSAL_CODES)[number];

/** Nothing was stored. `index` names the refused element of a batch, from 0. */
export class PublishRefusedError extends Error {
  override readonly name = "PublishRefusedError";
  readonly code: PublishRefusalCode;
  readonly index: number;
  /** What to do about it. */
  readonly remedy: string;

  constructor(code: PublishRefusalCode, index: number, message: string, remedy: string, cause: unknown) {
    super(message, { cause });
    this.code = code;
    this.index = index;
    this.remedy = remedy;
  }
}

/**
 * Publishes in the transaction of `client`, or on its own given a pool. Returns delivery ids in input order; the same
 * analysis again is the delivery that it already is.
 *
 * @throws PublishRefusedError naming the element, when one is bad; then none is published
 */
export async function publishAnalyses(
  database: PublishingDatabase,
  publications: readonly Publication[],
  traceparent: string | null = null,
): Promise<readonly string[]> {
  const text = "select sealpost.publish_analyses($1::uuid[], $2::json[], $3::text[]) as ids";
  return await callPublish(database, text, publications, traceparent);
}

/** Calls one of the SQL functions that publish, `text`, which returns `ids`. */
async function callPublish(
  database: PublishingDatabase,
  text: string,
  publications: readonly Publication[],
  traceparent: string | null,
): Promise<readonly string[]> {
  // In the same statement: it is evaluated before the call, and one that the transaction has set itself stays.
  const setting = traceparent === null ? "" : " from set_config('sealpost.traceparent', $4, true)";
  const values = [...columnsOf(publications), ...(traceparent === null ? [] : [traceparent])];
  const { rows } = await refusing(publications, () => database.query(`${text}${setting}`, values));
  return (rows[0] as { ids: string[] }).ids;
}

/** One array per argument. */
export function columnsOf(publications: readonly Publication[]): [string[], string[], (string | null)[]] {
  return [
    publications.map(({ accountId }) => accountId),
    publications.map(({ analysis }) => analysis),
    publications.map(({ webhookUrl }) => webhookUrl ?? null),
  ];
}

/** What the database refuses becomes a PublishRefusedError. */
export async function refusing<T>(publications: readonly Publication[], query: () => Promise<T>): Promise<T> {
  try {
    return await query();
  } catch (error) {
    throw refusalOf(error, publications) ?? error;
  }
}

function refusalOf(error: unknown, publications: readonly Publication[]): PublishRefusedError | null {
  // Not `instanceof` the driver's class: a pipeline may have a copy of the driver of its own.
  if (!(error instanceof Error)) return null;
  const { code: state, detail, hint } = error as Error & Partial<Record<"code" | "detail" | "hint", string>>;
  if (state === "22P02") return refusalOfArgument(error, publications);
  if (typeof state !== "string" || !/^SP\d{3}$/.test(state)) return null;
  const { index, code } = JSON.parse(detail ?? "{}") as { index: number; code: PublishRefusalCode };
  return new PublishRefusedError(code, index, error.message, hint ?? "", error);
}

/** The casts to json[] and uuid[] fail before our function is called, and do not say at which element. */
function refusalOfArgument(cause: Error, publications: readonly Publication[]): PublishRefusedError {
  const notJson = publications.findIndex(({ analysis }) => !isJson(analysis));
  if (notJson >= 0) {
    const message = `analysis at index ${notJson}: it is not JSON`;
    return new PublishRefusedError("invalid_analysis", notJson, message, "Send the analysis as JSON.", cause);
  }
  const noId = publications.findIndex(({ accountId }) => !/^[0-9a-f-]{36}$/i.test(accountId));
  const index = Math.max(noId, 0);
  const message = `analysis at index ${index}: its account id is not a UUID`;
  return new PublishRefusedError("unknown_account", index, message, "Give the account's id.", cause);
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Publishes an example event: a real analysis, marked as an example in the log. */
export async function publishExample(
  database: PublishingDatabase,
  publication: Publication,
): Promise<readonly string[]> {
  const text = "select sealpost.publish($1::uuid[], $2::json[], $3::text[], true, now()) as ids";
  return await callPublish(database, text, [publication], null);
}

/** The configuration that publishing in SQL needs. */
export type Settings = {
  readonly analysisBytesMax: number;
  /** `host:port` or `*.name:port`; empty in production. */
  readonly unsafeAllowedTargets: readonly string[];
};

// An unchanged row is not rewritten: publishers read it all the time.
const WRITE = `
update sealpost.settings set analysis_bytes_max = $1, unsafe_allowed_targets = $2
where (analysis_bytes_max, unsafe_allowed_targets) is distinct from ($1::integer, $2::text[])`;

/** Called after migrating: they hold for publishing from then on. */
export async function writeSettings(database: PublishingDatabase, settings: Settings): Promise<void> {
  await database.query(WRITE, [settings.analysisBytesMax, settings.unsafeAllowedTargets]);
}
