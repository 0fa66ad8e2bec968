import type { ClientBase, Pool } from "pg";
import { ANSWER_ROW_BYTES, claimIdempotencyKeys } from "../base/database/idempotency.ts";
import { createdAtMs } from "../base/database/partitions.ts";
import { onConnection } from "../base/database/transaction.ts";
import type { EventName } from "../base/model/events.ts";
import type { IdempotencyClaim, StoredResponse } from "../base/model/idempotency.ts";
import type { Reader } from "../base/model/reader.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { storageFullMessage } from "../base/model/storage.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/host.ts";
import type { Earlier } from "../http/operation.ts";
import { Problem } from "../http/problems.ts";
import { judgePublication } from "../publish/judge-publication.ts";
import {
  columnsOf,
  type Publication,
  type PublishRefusalCode,
  PublishRefusedError,
  refusing,
} from "../publish/publish-call-sql.ts";
import { sightOf, sightOfDelivery } from "./visibility-sql.ts";

/** The exact text, as it was published or is sent; null: it is no longer kept. */
type Kept = { readonly text: string | null; readonly isErased: boolean };

/** What a delivery sends, but for what its id tells. Null: the reader sees no delivery of this id. */
export async function findBody(
  database: Pool | ClientBase,
  reader: Reader,
  deliveryId: string,
): Promise<(Kept & { readonly event: EventName }) | null> {
  const seen = sightOf(reader, "d", 3);
  const { rows } = await database.query<Kept & { readonly event: EventName }>({
    name: `find_body${seen.name}`,
    text: `select d.event, coalesce(b.reference, b.analysis::text) as text,
             coalesce(sealpost.is_erased(b.analysis), false) as "isErased"
           from sealpost.deliveries d left join sealpost.bodies b on b.delivery_id = d.id
           where d.account_id = $1 and d.id = $2${seen.and}`,
    values: [reader.accountId, deliveryId, ...seen.values],
  });
  return rows[0] ?? null;
}

/** With when it was published, ms since the epoch. Null: the reader sees none, or the log no longer knows it. */
export async function findAnalysis(
  database: Pool | ClientBase,
  reader: Reader,
  analysisId: string,
): Promise<(Kept & { readonly publishedAtMs: number }) | null> {
  const seen = sightOfDelivery(reader, "a.account_id", "a.delivery_id", 3);
  const { rows } = await database.query<Kept & { readonly delivery_id: string }>({
    name: `find_analysis${seen.name}`,
    text: `select a.delivery_id, b.analysis::text as text, a.digest = '' as "isErased"
           from sealpost.analyses a left join sealpost.bodies b on b.delivery_id = a.delivery_id
           where a.account_id = $1 and a.id = $2${seen.and}`,
    values: [reader.accountId, analysisId, ...seen.values],
  });
  const [row] = rows;
  if (row === undefined) return null;
  return { text: row.text, isErased: row.isErased, publishedAtMs: createdAtMs(row.delivery_id) };
}

/** A request to publish, under its Idempotency-Key. */
export type PublishWrite = Omit<Publication, "accountId"> & {
  readonly claim: IdempotencyClaim;
  /** For whom the caller acts; null: the account. */
  readonly userId: string | null;
  readonly traceparent: string | null;
  /** What is stored of the answer to a delivery of this id. */
  readonly answer: (deliveryId: string) => StoredResponse;
};

type Refusal = Problem | PublishRefusedError;

/** Or one that is refused whatever it asks for; a repeat of what was answered is found all the same. */
type Write =
  | PublishWrite
  | (Pick<PublishWrite, "claim" | "userId"> & { readonly analysis: null; readonly refusal: Refusal });

/** What became of one: its delivery, which it may have had before, or why there is none. */
export type PublishResult = Refusal | Earlier | { readonly deliveryId: string };

export type PublishWritesOptions = {
  readonly secretsKey: SecretsKey;
  readonly unsafeAllowedTargets?: UnsafeAllowedTargets;
  readonly lockWaitMs: number;
};

/**
 * Publishes for requests that have nothing to do with each other, in one statement, each judged by itself: see
 * sealpost.publish_writes.
 *
 * @returns results in input order
 * @throws PublishRefusedError when a text is not JSON; nothing was stored then
 */
export async function publishWrites(
  database: Pool | ClientBase,
  writes: readonly Write[],
  options: PublishWritesOptions,
): Promise<readonly PublishResult[]> {
  const judged = writes.map((write) => judge(write, options));
  const { ids, codes, answersMax } = await callPublishWrites(database, judged, options.lockWaitMs);
  const having = (wanted: PublishCode) => judged.filter((_, index) => codes[index] === wanted);
  const refusals = await readRefusals(database, having("refused"));
  const busy = having("busy").map(({ claim }) => claim);
  const states = busy.length === 0 ? [] : await claimIdempotencyKeys(database, busy, options.secretsKey);
  const [nextRefusal, nextState] = [refusals.values(), states.values()];
  return judged.map((write, index): PublishResult => {
    switch (codes[index]) {
      case "key":
        // The caller's key is good no more; what could not even be read says so all the same.
        return write.refusal instanceof Problem ? write.refusal : new Problem("unauthorized");
      case "busy":
        return { earlier: nextState.next().value! };
      case "not_asked":
        if (write.refusal !== null) return write.refusal;
        throw new Error("A request that asks for something was not asked.");
      // There is no room for the answer to what was published before.
      case "full": {
        const message = storageFullMessage("answers", answersMax!);
        return new Problem("storage_full", { errors: [{ path: "account", message }] });
      }
      case "analysis_conflict": {
        const message = "analysis at index 0: its id was already published with another text or webhook_url";
        const remedy = "An analysis id stands for one result: publish a new result under a new id.";
        return new PublishRefusedError("analysis_conflict", 0, message, remedy, null);
      }
      case "refused":
        return nextRefusal.next().value!;
      default:
        return { deliveryId: ids[index]! };
    }
  });
}

/** As it is asked of the database: what is refused asks for nothing. */
type Judged = ReturnType<typeof judge>;

function judge(write: Write, options: PublishWritesOptions) {
  const { claim, userId } = write;
  const { accountId } = claim;
  const of = { claim, userId, accountId };
  const verdict =
    write.analysis === null ? write.refusal : judgePublication({ ...write, accountId }, options, 0);
  if (verdict instanceof Error) {
    return { ...of, refusal: verdict, analysis: null, webhookUrl: null, traceparent: null, answer: null };
  }
  const { analysis, webhookUrl = null, traceparent } = verdict;
  return { ...of, refusal: null, analysis, webhookUrl, traceparent, answer: verdict.answer(SOME_ID) };
}

/** Null: it is new, and published. */
type PublishCode =
  | "key"
  | "busy"
  | "not_asked"
  | "known"
  | "known_of_space"
  | "full"
  | "analysis_conflict"
  | "refused"
  | null;

/** In place of a delivery's id, to find where it stands in an answer. */
const SOME_ID = "00000000-0000-7000-8000-000000000000";
/** What an answer counts as: its members' names and marks, a delivery's id, the longest id of an analysis, its row. */
const ANSWER_BYTES = ANSWER_ROW_BYTES + 300;

/** Around the last one: the analysis may be called so, too. */
function aroundId(answer: StoredResponse | null): readonly [string | null, string | null] {
  if (answer === null) return [null, null];
  const text = answer.body?.toString() ?? "";
  const at = text.lastIndexOf(SOME_ID);
  return [text.slice(0, at), text.slice(at + SOME_ID.length)];
}

async function callPublishWrites(database: Pool | ClientBase, asked: readonly Judged[], lockWaitMs: number) {
  const parts = asked.map(({ answer }) => aroundId(answer));
  // Spelled as an array, 1 MiB takes 78 ms of the thread, and large ones always come alone.
  const isAlone = asked.length === 1;
  const some = asked.find(({ answer }) => answer !== null)?.answer;
  const values = [
    asked.map(({ accountId }) => accountId),
    asked.map(({ claim }) => claim.keyId),
    asked.map(({ userId }) => userId),
    asked.map(({ claim }) => claim.idempotencyKey),
    asked.map(({ claim }) => claim.fingerprint),
    isAlone ? asked[0]!.analysis : asked.map(({ analysis }) => analysis),
    asked.map(({ webhookUrl }) => webhookUrl),
    asked.map(({ traceparent }) => traceparent),
    ...[0, 1].map((n) => parts.map((part) => part[n])),
    ...[asked[0]!.claim.operationKey, some?.status ?? null, some ? JSON.stringify(some.headers) : null],
    ...[ANSWER_BYTES, lockWaitMs],
  ];
  const publications = asked.map(({ analysis, ...rest }) => ({ ...rest, analysis: analysis ?? "null" }));
  const { rows } = await refusing(publications, () =>
    onConnection(database, (client) =>
      client.query<{ ids: (string | null)[]; codes: PublishCode[]; answersMax: number | null }>({
        name: isAlone ? "publish_write" : "publish_writes",
        text: `select delivery_ids as ids, codes, answers_max::float8 as "answersMax"
        from sealpost.publish_writes($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[],
          ${isAlone ? "array[$6::json]" : "$6::json[]"},
          $7::text[], $8::text[], $9::text[], $10::text[], $11, $12, $13::json, $14, $15)`,
        values,
      }),
    ),
  );
  return rows[0]!;
}

/** Why each of these is refused, in their order. */
async function readRefusals(
  database: Pool | ClientBase,
  writes: readonly Judged[],
): Promise<readonly PublishRefusedError[]> {
  if (writes.length === 0) return [];
  const { rows } = await database.query<{ code: PublishRefusalCode; fault: string; hint: string }>({
    name: "publication_faults",
    text: `select code, fault, hint from sealpost.publication_faults($1::uuid[], $2::json[], $3::text[])
      order by n`,
    values: columnsOf(writes.map((write) => ({ ...write, analysis: write.analysis! }))),
  });
  if (rows.length < writes.length)
    throw new Error("an account or a setting was changed while an analysis was published");
  return rows.map(({ code, fault, hint }) => {
    return new PublishRefusedError(code, 0, `analysis at index 0: ${fault}`, hint, null);
  });
}
