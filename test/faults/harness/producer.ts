// The analysis pipeline: publishes, and remembers what it tried and what was acknowledged to it.
import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";

export type Publication = {
  readonly analysisId: string;
  readonly accountId: string;
  /** SHA-256 (hex) of the analysis's text. */
  readonly digest: string;
  readonly triedAtMs: number;
  /** The commit came back; null: never. */
  acknowledgedAtMs: number | null;
  deliveryId: string | null;
  /** A try before the acknowledged one ended without an answer: it may have been stored all the same. */
  wasInDoubt: boolean;
};

const PUBLISH = "select sealpost.publish_analysis($1, $2, $3) as id";
const RETRY_MS = 100;
const CONNECTIONS_MAX = 4;

/** An analysis that nobody has tried to publish yet, and its text. */
export function newPublication(
  analysisId: string,
  nth: number,
  accountId: string,
  bytes = 100,
): { readonly publication: Publication; readonly text: string } {
  const begin = `{"id":"${analysisId}","status":"${nth % 5 === 0 ? "failed" : "succeeded"}","n":${nth}.0`;
  const text = `${begin},"text":"${"x".repeat(Math.max(0, bytes - begin.length - 10))}"}`;
  const publication = {
    analysisId,
    accountId,
    digest: createHash("sha256").update(text).digest("hex"),
    triedAtMs: Date.now(),
    acknowledgedAtMs: null,
    deliveryId: null,
    wasInDoubt: false,
  };
  return { publication, text };
}

export class Producer {
  readonly #pool: pg.Pool;
  readonly #name: string;
  readonly publications: Publication[] = [];
  #isStopping = false;

  /** `name` sets its analyses apart from those of other producers. */
  constructor(databaseUrl: string, name: string) {
    this.#name = name;
    this.#pool = new pg.Pool({
      connectionString: databaseUrl,
      max: CONNECTIONS_MAX,
      connectionTimeoutMillis: 2_000,
      query_timeout: 10_000,
    });
    this.#pool.on("error", () => undefined);
    this.#pool.on("connect", (client) => client.on("error", () => undefined));
  }

  /** One analysis in a transaction of its own, tried again with the same text until it is acknowledged. */
  async publish(accountId: string, webhookUrl: string | null = null, bytes = 100): Promise<Publication> {
    const nth = this.publications.length;
    const { publication, text } = newPublication(`${this.#name}-${nth}`, nth, accountId, bytes);
    this.publications.push(publication);
    while (publication.acknowledgedAtMs === null && !this.#isStopping) {
      await this.#try(publication, text, webhookUrl);
    }
    return publication;
  }

  /** As fast as its connections allow. */
  async publishMany(
    count: number,
    accountId: string,
    webhookUrl: string | null = null,
  ): Promise<Publication[]> {
    const published: Publication[] = [];
    let left = count;
    const publishOneByOne = async () => {
      while (left-- > 0) published.push(await this.publish(accountId, webhookUrl));
    };
    await Promise.all(Array.from({ length: CONNECTIONS_MAX }, publishOneByOne));
    return published;
  }

  /** Publishes at a steady rate, whatever becomes of it, until the signal; resolves when the last is acknowledged. */
  async run(perSecond: number, accounts: readonly string[], signal: AbortSignal): Promise<void> {
    const pending = new Set<Promise<unknown>>();
    for (let nth = 0; !signal.aborted; nth++) {
      const publishing = this.publish(accounts[nth % accounts.length]!).finally(() =>
        pending.delete(publishing),
      );
      pending.add(publishing);
      await wait(1000 / perSecond, null, { signal }).catch(() => undefined);
    }
    await Promise.all(pending);
  }

  async #try(publication: Publication, text: string, webhookUrl: string | null): Promise<void> {
    try {
      publication.deliveryId = await this.#commit([publication.accountId, text, webhookUrl]);
      publication.acknowledgedAtMs = Date.now();
    } catch (error) {
      // Refused by our own SQL is an answer; everything else leaves it open whether the commit was reached.
      if (error instanceof pg.DatabaseError && error.code?.startsWith("SP")) throw error;
      publication.wasInDoubt = true;
      await wait(RETRY_MS);
    }
  }

  /** Rejects, too, when PostgreSQL warns that the synchronous standby may lack what it has committed. */
  async #commit(values: readonly unknown[]): Promise<string> {
    const client = await this.#pool.connect();
    let warning: string | undefined;
    const onNotice = ({ message }: { readonly message?: string | undefined }) => {
      warning = message;
    };
    client.on("notice", onNotice);
    try {
      const { rows } = await client.query<{ id: string }>(PUBLISH, [...values]);
      if (warning !== undefined) throw new Error(warning);
      client.release();
      return rows[0]!.id;
    } catch (error) {
      client.release(true);
      throw error;
    } finally {
      client.off("notice", onNotice);
    }
  }

  async close(): Promise<void> {
    this.#isStopping = true;
    await this.#pool.end();
  }
}
