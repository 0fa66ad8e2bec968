// The ways in which the publisher can be made to publish, and two that the baselines are measured by.
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import type pg from "pg";
import { Pool as HttpPool } from "undici";

/** How a stream publishes. */
export type Via =
  /** One statement that is a transaction of its own: publish_analysis for one, publish_analyses for more. */
  | { readonly kind: "statement" }
  /** The same between BEGIN and COMMIT, as a pipeline does that has statements of its own in there. */
  | { readonly kind: "transaction" }
  /** The baseline: the text goes into a plain table, one row a statement. */
  | { readonly kind: "insert" }
  /** POST /v1/analyses over kept connections, one request at a time on each; one analysis a request. */
  | {
      readonly kind: "http";
      readonly url: string;
      /** By account. */
      readonly apiKeys: ReadonlyMap<string, string>;
      /** Of 429: an answer that publishes nothing, or one to repeat after Retry-After, as a customer does. */
      readonly whenLimited: "counted" | "repeated";
      /** Of a workflow's hook, in place of publishing: it takes the analysis by itself. 409: too many of its runs. */
      readonly hookPath?: string;
    };

/** More than are ever in flight while a service keeps up: opened when all others are busy. */
const HTTP_CONNECTIONS_MAX = 256;
/** By address: streams that follow each other go over the same connections. */
const httpPools = new Map<string, HttpPool>();

export type Batch = {
  readonly accountIds: readonly string[];
  readonly ids: readonly string[];
  readonly texts: readonly string[];
  /** Null: the account's endpoint. Only statements and transactions have any. */
  readonly webhookUrls: readonly (string | null)[];
};

/**
 * Resolves when the batch is committed; to false when nothing was, because there were too many requests. `onSent` is
 * called as what commits it is sent.
 */
export type PublishCall = (batch: Batch, onSent: () => void) => Promise<boolean>;

export function createPublishCall(via: Via, pool: pg.Pool): PublishCall {
  switch (via.kind) {
    case "statement":
      return async (batch, onSent) => {
        onSent();
        await pool.query(publishStatement(batch));
        return true;
      };
    case "transaction":
      return async (batch, onSent) => {
        const connection = await pool.connect();
        // Not awaited one by one: COMMIT follows at once.
        const begun = connection.query("begin");
        await Promise.all([begun, connection.query(publishStatement(batch))]);
        onSent();
        await connection.query("commit");
        connection.release();
        return true;
      };
    case "insert":
      return async ({ ids, texts }, onSent) => {
        onSent();
        await pool.query(plainInsert(ids[0], texts[0]));
        return true;
      };
    case "http":
      return createHttpCall(via);
    default:
      throw new Error(`Unknown way of publishing ${via satisfies never}`);
  }
}

/** The table is made with each database; see fillTemplate. */
export function plainInsert(id: string | undefined, text: string | undefined): pg.QueryConfig {
  return {
    name: "plain_insert",
    text: "insert into public.plain (id, analysis) values ($1, $2)",
    values: [id, text],
  };
}

function publishStatement({ accountIds, texts, webhookUrls }: Batch): pg.QueryConfig {
  if (texts.length === 1 && webhookUrls[0] === null) {
    return {
      name: "publish_one",
      text: "select sealpost.publish_analysis($1::uuid, $2::json)",
      values: [accountIds[0], texts[0]],
    };
  }
  return {
    name: "publish",
    text: "select sealpost.publish_analyses($1::uuid[], $2::json[], $3::text[])",
    values: [accountIds, texts, webhookUrls],
  };
}

/** By undici's cheapest way, as the client shares the processors with what it measures. */
function createHttpCall({
  url,
  apiKeys,
  whenLimited,
  hookPath,
}: Extract<Via, { kind: "http" }>): PublishCall {
  const connections =
    httpPools.get(url) ?? new HttpPool(url, { connections: HTTP_CONNECTIONS_MAX, keepAliveTimeout: 600_000 });
  httpPools.set(url, connections);
  function send(batch: Batch, headers: Record<string, string>): Promise<boolean> {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const refusal: Buffer[] = [];
    let status = 0;
    let retryAfterSeconds = 1;
    const text = batch.texts[0] ?? "";
    const body = hookPath === undefined ? `{"analysis":${text}}` : text;
    connections.dispatch(
      { method: "POST", path: hookPath ?? "/v1/analyses", headers, body },
      {
        onRequestStart: () => undefined,
        onResponseStart: (_controller, statusCode, answered) => {
          status = statusCode;
          if (status === 429) retryAfterSeconds = Number(answered["retry-after"]);
        },
        onResponseData: (_controller, chunk) => {
          if (status !== 202) refusal.push(chunk);
        },
        onResponseEnd: () => {
          if (status === 202) resolve(true);
          else if (status === 429 && whenLimited === "counted") resolve(false);
          else if (status === 409 && hookPath !== undefined) resolve(false);
          else if (status === 429) resolve(wait(1_000 * retryAfterSeconds).then(() => send(batch, headers)));
          else reject(new Error(`A publish was answered ${status}: ${Buffer.concat(refusal)}`));
        },
        onResponseError: (_controller, error) => reject(error),
      },
    );
    return promise;
  }

  return (batch, onSent) => {
    const headers = {
      authorization: `Bearer ${apiKeys.get(batch.accountIds[0] ?? "")}`,
      "content-type": "application/json",
      "idempotency-key": randomUUID(),
    };
    onSent();
    return send(batch, headers);
  };
}
