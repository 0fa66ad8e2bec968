// The analysis pipeline, in every way there is: transactions (some rolled back), batches, the API. It remembers what
// was acknowledged to it, for the checker.
import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import type { Publication } from "../faults/harness/producer.ts";
import { type ApiCall, type ApiReply, call } from "./api-call.ts";

const BATCH = 10;
/** Wake-ups are only hints. These reach dispatchers that are to leave alone what another one is just sending. */
const WAKE_ALL = `
select sealpost.add_wakeups(array_agg(delivery_id), array_agg(lane))
from (select delivery_id, lane from sealpost.open_deliveries where lease_until > now() limit 200) as leased`;
/** About 40 analyses a second, all ways together. */
const PAUSE_MS = 250;
const ROLLED_BACK_EVERY = 3;

export type PipelineOptions = {
  readonly databaseUrl: string;
  readonly accountId: string;
  readonly apiKey: string;
  /** Given in turn to analyses that are published to no other; null: the account's endpoint. */
  readonly webhookUrls: readonly (string | null)[];
};

export class Pipeline {
  readonly #options: PipelineOptions;
  readonly #pool: pg.Pool;
  readonly publications: Publication[] = [];
  /** What was published over the API, and its answers. */
  readonly calls: { readonly asked: ApiCall; readonly reply: ApiReply }[] = [];
  /** Tried in their order. */
  apis: readonly string[] = [];
  #analyses = 0;
  #transactions = 0;
  rolledBack = 0;
  /** Requests that were answered 503 with Retry-After. */
  sentAway = 0;
  /** The longest that anybody waited for an acknowledgement. */
  slowestMs = 0;

  constructor(options: PipelineOptions) {
    this.#options = options;
    this.#pool = new pg.Pool({ connectionString: options.databaseUrl, max: 3 });
    this.#pool.on("error", () => undefined);
  }

  /** In every way at once, again and again until the signal. Rejects at the first refusal. */
  async run(signal: AbortSignal): Promise<void> {
    const ways = [
      () => this.#inTransaction(),
      () => this.publishBatch(BATCH),
      () => this.publishByApi(),
      () => this.#readByApi(),
      () => this.#pool.query(WAKE_ALL),
    ];
    const repeat = async (publish: () => Promise<unknown>) => {
      while (!signal.aborted) {
        await publish();
        await wait(PAUSE_MS, null, { signal }).catch(() => undefined);
      }
    };
    await Promise.all(ways.map(repeat));
  }

  /** One statement; returns the ids of the deliveries. */
  async publishBatch(count: number, webhookUrl?: string | null): Promise<string[]> {
    const made = Array.from({ length: count }, () => this.#make(webhookUrl));
    const { rows } = await this.#pool.query<{ ids: string[] }>(
      "select sealpost.publish_analyses($1, $2, $3) as ids",
      [
        made.map(({ publication }) => publication.accountId),
        made.map(({ text }) => text),
        made.map(({ webhookUrl }) => webhookUrl),
      ],
    );
    const ids = rows[0]!.ids;
    for (const [n, { publication }] of made.entries()) this.#acknowledge(publication, ids[n]!);
    return ids;
  }

  /** Asked again under the same key, at the next API, when one gives no answer. */
  async publishByApi(webhookUrl?: string | null): Promise<void> {
    const { publication, text, webhookUrl: url } = this.#make(webhookUrl);
    const asked: ApiCall = {
      method: "POST",
      path: "/v1/analyses",
      apiKey: this.#options.apiKey,
      body: `{"analysis":${text},"webhook_url":${JSON.stringify(url)}}`,
      idempotencyKey: publication.analysisId,
    };
    const reply = await this.#ask(asked, () => {
      publication.wasInDoubt = true;
    });
    if (reply.status !== 202) throw new Error(`Publishing was answered ${reply.status}: ${reply.text}`);
    this.calls.push({ asked, reply });
    this.#acknowledge(publication, (JSON.parse(reply.text) as { delivery_id: string }).delivery_id);
  }

  async #readByApi(): Promise<void> {
    const asked = {
      method: "GET",
      path: "/v1/webhooks/deliveries?limit=5",
      apiKey: this.#options.apiKey,
    } as const;
    const { status, text } = await this.#ask(asked);
    if (status !== 200) throw new Error(`Reading was answered ${status}: ${text}`);
  }

  /** At the next API when one gives no answer, or says when to ask again. */
  async #ask(asked: ApiCall, onSilence = () => {}): Promise<ApiReply> {
    for (let n = 0; ; n++) {
      const reply = await call(this.apis[n % this.apis.length]!, asked).catch(() => null);
      if (reply !== null && (reply.status !== 503 || reply.retryAfter === null)) return reply;
      if (reply === null) onSilence();
      else this.sentAway++;
      await wait(PAUSE_MS);
    }
  }

  /** Some analyses together with something of the pipeline's own; every third time it changes its mind. */
  async #inTransaction(): Promise<void> {
    const isKept = ++this.#transactions % ROLLED_BACK_EVERY !== 0;
    const client = await this.#pool.connect();
    try {
      const ids = new Map<Publication, string>();
      await client.query("begin");
      for (let n = 0; n < 2; n++) {
        const { publication, text, webhookUrl } = this.#make(undefined, isKept);
        const { rows } = await client.query<{ id: string }>(
          "select sealpost.publish_analysis($1, $2, $3) as id",
          [publication.accountId, text, webhookUrl],
        );
        ids.set(publication, rows[0]!.id);
      }
      await client.query(isKept ? "commit" : "rollback");
      if (!isKept) this.rolledBack += ids.size;
      else for (const [publication, id] of ids) this.#acknowledge(publication, id);
    } finally {
      client.release();
    }
  }

  /** Written down before it is tried; what is not kept is never expected, and its arrival would be noticed. */
  #make(asked?: string | null, isKept = true) {
    const { accountId, webhookUrls } = this.#options;
    const nth = this.#analyses++;
    const webhookUrl = asked === undefined ? webhookUrls[nth % webhookUrls.length]! : asked;
    const text = `{ "id":"analysis-${nth}", "status":"${nth % 5 === 0 ? "failed" : "succeeded"}", "n":${nth}.0 }`;
    const publication: Publication = {
      analysisId: `analysis-${nth}`,
      accountId,
      digest: createHash("sha256").update(text).digest("hex"),
      triedAtMs: Date.now(),
      acknowledgedAtMs: null,
      deliveryId: null,
      wasInDoubt: false,
    };
    if (isKept) this.publications.push(publication);
    return { publication, text, webhookUrl };
  }

  #acknowledge(publication: Publication, deliveryId: string): void {
    publication.deliveryId = deliveryId;
    publication.acknowledgedAtMs = Date.now();
    this.slowestMs = Math.max(this.slowestMs, publication.acknowledgedAtMs - publication.triedAtMs);
  }

  close(): Promise<void> {
    return this.#pool.end();
  }
}
