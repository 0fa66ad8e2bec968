import type { ClientBase, Pool } from "pg";
import type { UnsafeAllowedTargets } from "../egress/rules/host.ts";
import { judgePublication } from "./judge-publication.ts";
import {
  callPublish,
  columnsOf,
  type Publication,
  type PublishRefusalCode,
  PublishRefusedError,
  refusing,
} from "./publish-call-sql.ts";

/**
 * Publishes analyses that have nothing to do with each other, in one transaction: each is published or refused by
 * itself.
 *
 * @returns results in input order
 */
export async function publishEach(
  tx: ClientBase,
  publications: readonly Asked[],
  options: { readonly unsafeAllowedTargets?: UnsafeAllowedTargets },
): Promise<readonly PublishResult[]> {
  const verdicts = publications.map((publication) => judgePublication(publication, options, 0));
  const allowed = verdicts.flatMap((verdict) => (verdict instanceof PublishRefusedError ? [] : [verdict]));
  const results = allowed.length === 0 ? [] : await publishJudged(tx, allowed);
  let next = 0;
  return verdicts.map((verdict) =>
    verdict instanceof PublishRefusedError ? { refusal: verdict } : results[next++]!,
  );
}

/** Publishes an example event: a real analysis, marked as an example in the log. */
export async function publishExample(
  database: Pool | ClientBase,
  publication: Publication,
  traceparent: string | null = null,
): Promise<readonly string[]> {
  return await callPublish(
    database,
    "select sealpost.publish($1::uuid[], $2::json[], $3::text[], true, now()) as ids",
    [publication],
    traceparent,
  );
}

/** What became of one analysis: its delivery, which it may have had before, or why there is none. */
export type PublishResult =
  | { readonly deliveryId: string; readonly isKnown: boolean }
  | { readonly refusal: PublishRefusedError };

type Asked = Publication & {
  readonly traceparent: string | null;
  /** For whom the caller acts; null: the account. */
  readonly userId: string | null;
};

/**
 * Publishes each by itself, in the transaction of `client`: one that is refused costs the others nothing. Results in
 * input order.
 *
 * @throws PublishRefusedError when a text is not JSON; the transaction is of no more use then
 */
async function publishJudged(
  client: ClientBase,
  publications: readonly Asked[],
): Promise<readonly PublishResult[]> {
  const deliveryId = await publishIfFresh(client, publications);
  if (deliveryId !== null) return [{ deliveryId, isKnown: false }];
  const values = [...columnsOf(publications), publications.map(({ traceparent }) => traceparent)];
  const { rows } = await refusing(publications, () =>
    client.query<{ ids: (string | null)[]; codes: (PublishCode | null)[] }>({
      name: "publish_each",
      text: `select delivery_ids as ids, codes
        from sealpost.publish_each($1::uuid[], $2::json[], $3::text[], $4::text[], false, now())`,
      values,
    }),
  );
  const { ids, codes } = rows[0]!;
  const refusals = await readRefusals(client, publications, codes);
  return ids.map((deliveryId, index) => {
    const code = codes[index] ?? null;
    // The id is the run's: who may not read what it has published would learn that the guess is right.
    if (code === "known_of_space" && publications[index]!.userId !== null) return { refusal: conflictOf() };
    if (deliveryId !== null) return { deliveryId, isKnown: code !== null };
    const refusal = code === "analysis_conflict" ? conflictOf() : refusals.get(index);
    if (refusal === undefined)
      throw new Error("an account or a setting was changed while an analysis was published");
    return { refusal };
  });
}

/** The short way for a single one. Null: it is not as simple as that, and nothing was stored. */
async function publishIfFresh(client: ClientBase, publications: readonly Asked[]): Promise<string | null> {
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

/** What is known was published before, by a run where it says so. */
type PublishCode = "refused" | "analysis_conflict" | "known" | "known_of_space";

async function readRefusals(
  client: ClientBase,
  publications: readonly Publication[],
  codes: readonly (PublishCode | null)[],
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
