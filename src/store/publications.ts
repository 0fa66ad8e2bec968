import pg, { type ClientBase, type Pool } from "pg";

export type Publication = {
  readonly accountId: string;
  /** The analysis's exact JSON text. */
  readonly analysis: string;
  /** Where this one goes; null or left out: the account's endpoint. */
  readonly webhookUrl?: string | null;
};

/** Why publishing was refused; the SQLSTATEs of sql/0005_publish.sql by their codes. */
export const PUBLISH_REFUSAL_CODES = [
  "unknown_account",
  "invalid_analysis",
  "analysis_too_large",
  "target_refused",
  "analysis_conflict",
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
  database: Pool | ClientBase,
  publications: readonly Publication[],
  traceparent: string | null = null,
): Promise<readonly string[]> {
  return await publish(
    database,
    "select sealpost.publish_analyses($1::uuid[], $2::json[], $3::text[]) as ids",
    publications,
    traceparent,
  );
}

/** Publishes an example event: a real analysis, marked as an example in the log. */
export async function publishExample(
  database: Pool | ClientBase,
  publication: Publication,
  traceparent: string | null = null,
): Promise<readonly string[]> {
  return await publish(
    database,
    "select sealpost.publish($1::uuid[], $2::json[], $3::text[], true, now()) as ids",
    [publication],
    traceparent,
  );
}

/** What became of one analysis: its delivery, or why there is none. */
export type PublishResult = { readonly deliveryId: string } | { readonly refusal: PublishRefusedError };

/**
 * Publishes each by itself, in the transaction of `client`: one that is refused costs the others nothing. Results in
 * input order.
 *
 * @throws PublishRefusedError when a text is not JSON; the transaction is of no more use then
 */
export async function publishEach(
  client: ClientBase,
  publications: readonly (Publication & { readonly traceparent: string | null })[],
): Promise<readonly PublishResult[]> {
  const deliveryId = await publishIfFresh(client, publications);
  if (deliveryId !== null) return [{ deliveryId }];
  const values = [...columnsOf(publications), publications.map(({ traceparent }) => traceparent)];
  const { rows } = await refusing(publications, () =>
    client.query<{ ids: (string | null)[]; codes: (PublishFaultCode | null)[] }>({
      name: "publish_each",
      text: `select delivery_ids as ids, codes
        from sealpost.publish_each($1::uuid[], $2::json[], $3::text[], $4::text[], false, now())`,
      values,
    }),
  );
  const { ids, codes } = rows[0]!;
  const refusals = await readRefusals(client, publications, codes);
  return ids.map((deliveryId, index) => {
    if (deliveryId !== null) return { deliveryId };
    const refusal = codes[index] === "analysis_conflict" ? conflictOf() : refusals.get(index);
    if (refusal === undefined)
      throw new Error("an account or a setting was changed while an analysis was published");
    return { refusal };
  });
}

/** The short way for a single one. Null: it is not as simple as that, and nothing was stored. */
async function publishIfFresh(
  client: ClientBase,
  publications: readonly (Publication & { readonly traceparent: string | null })[],
): Promise<string | null> {
  const [only] = publications;
  if (publications.length !== 1 || only === undefined || (only.webhookUrl ?? null) !== null) return null;
  const { rows } = await refusing(publications, () =>
    client.query<{ id: string | null }>({
      name: "publish_fresh",
      text: "select sealpost.publish_fresh($1::uuid, $2::json, $3::text) as id",
      values: [only.accountId, only.analysis, only.traceparent],
    }),
  );
  return rows[0]!.id;
}

type PublishFaultCode = "refused" | "analysis_conflict";

async function readRefusals(
  client: ClientBase,
  publications: readonly Publication[],
  codes: readonly (PublishFaultCode | null)[],
): Promise<ReadonlyMap<number, PublishRefusedError>> {
  if (!codes.includes("refused")) return new Map();
  const { rows } = await client.query<{ n: string; code: PublishRefusalCode; fault: string; hint: string }>({
    name: "publication_faults",
    text: "select n, code, fault, hint from sealpost.publication_faults($1::uuid[], $2::json[], $3::text[])",
    values: columnsOf(publications),
  });
  const refusals = rows.map(({ n, code, fault, hint }) => {
    const index = Number(n) - 1;
    return [index, new PublishRefusedError(code, 0, `analysis at index 0: ${fault}`, hint, null)] as const;
  });
  return new Map(refusals);
}

function conflictOf(): PublishRefusedError {
  const message = "analysis at index 0: its id was already published with another text or webhook_url";
  const remedy = "An analysis id stands for one result: publish a new result under a new id.";
  return new PublishRefusedError("analysis_conflict", 0, message, remedy, null);
}

async function publish(
  database: Pool | ClientBase,
  text: string,
  publications: readonly Publication[],
  traceparent: string | null,
): Promise<readonly string[]> {
  // In the same statement: it is evaluated before the call, and one that the transaction has set itself stays.
  const setting = traceparent === null ? "" : " from set_config('sealpost.traceparent', $4, true)";
  const values = [...columnsOf(publications), ...(traceparent === null ? [] : [traceparent])];
  const { rows } = await refusing(publications, () =>
    database.query<{ ids: string[] }>(`${text}${setting}`, values),
  );
  return rows[0]!.ids;
}

function columnsOf(publications: readonly Publication[]): [string[], string[], (string | null)[]] {
  return [
    publications.map(({ accountId }) => accountId),
    publications.map(({ analysis }) => analysis),
    publications.map(({ webhookUrl }) => webhookUrl ?? null),
  ];
}

async function refusing<T>(publications: readonly Publication[], query: () => Promise<T>): Promise<T> {
  try {
    return await query();
  } catch (error) {
    throw refusalOf(error, publications) ?? error;
  }
}

function refusalOf(error: unknown, publications: readonly Publication[]): PublishRefusedError | null {
  if (!(error instanceof pg.DatabaseError)) return null;
  if (error.code === "22P02") return refusalOfArgument(error, publications);
  if (!error.code?.startsWith("SP")) return null;
  const { index, code } = JSON.parse(error.detail ?? "{}") as { index: number; code: PublishRefusalCode };
  return new PublishRefusedError(code, index, error.message, error.hint ?? "", error);
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
export async function writeSettings(database: Pool | ClientBase, settings: Settings): Promise<void> {
  await database.query(WRITE, [settings.analysisBytesMax, settings.unsafeAllowedTargets]);
}
