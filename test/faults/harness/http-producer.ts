// A pipeline that publishes over HTTP, and repeats under the same Idempotency-Key until the answer is 202.
import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { patientSignal } from "../../support/time-limits.ts";
import { newPublication, type Publication } from "./producer.ts";

export type HttpCustomer = { readonly accountId: string; readonly apiKey: string };

type Sent = {
  readonly publication: Publication;
  readonly customer: HttpCustomer;
  readonly body: string;
  readonly idempotencyKey: string;
};

type Answer = {
  readonly status: number;
  readonly isReplayed: boolean;
  readonly body: { readonly analysis_id?: string; readonly delivery_id?: string; readonly code?: string };
};

const REPEAT_AFTER_MS = 20;
const ANSWER_WITHIN_MS = 15_000;

export class HttpProducer {
  readonly #sent: Sent[] = [];
  readonly #customers: readonly HttpCustomer[];
  readonly #pickUrl: () => string;
  /** Where the checker finds what was published. */
  readonly publications: Publication[];
  #isClosed = false;
  /** Analyses. */
  acknowledged = 0;
  /** Requests that were cut off without an answer. */
  cut = 0;
  /** Repeats that were told of a request that nobody had got an answer to: it had been committed. */
  found = 0;
  /** Repeats that were told that the first request was still under way. */
  inProgress = 0;

  constructor(customers: readonly HttpCustomer[], pickUrl: () => string, publications: Publication[]) {
    this.#customers = customers;
    this.#pickUrl = pickUrl;
    this.publications = publications;
  }

  /**
   * So many requests in flight until the signal; resolves when the last analysis is acknowledged.
   * @param mayGoOn awaited before each
   */
  async run(
    inFlight: number,
    signal: AbortSignal,
    mayGoOn: () => Promise<void> = async () => undefined,
  ): Promise<void> {
    const publishOneByOne = async () => {
      for (; !signal.aborted; await mayGoOn()) await this.#publish();
    };
    await Promise.all(Array.from({ length: inFlight }, publishOneByOne));
  }

  /**
   * Again: every request that had been left without an answer, and every fifth of the others; half of them once more
   * under another key. All get the answer that there was.
   *
   * @returns how many
   */
  async repeat(inFlight: number): Promise<number> {
    const chosen = this.#sent.filter(({ publication }, nth) => publication.wasInDoubt || nth % 5 === 0);
    const left = [...chosen];
    const repeatOneByOne = async () => {
      for (let sent = left.pop(); sent !== undefined; sent = left.pop()) {
        const { isReplayed } = await this.#untilAnswered(sent);
        if (!isReplayed) throw new Error(`${sent.publication.analysisId} was published by a repeat`);
        if (left.length % 2 === 0) await this.#untilAnswered({ ...sent, idempotencyKey: randomUUID() });
      }
    };
    await Promise.all(Array.from({ length: inFlight }, repeatOneByOne));
    return chosen.length;
  }

  async #publish(): Promise<void> {
    const nth = this.#sent.length;
    const customer = this.#customers[nth % this.#customers.length]!;
    const { publication, text } = newPublication(`http-${nth}`, nth, customer.accountId);
    const sent = { publication, customer, body: `{"analysis":${text}}`, idempotencyKey: randomUUID() };
    this.#sent.push(sent);
    this.publications.push(publication);
    const { isReplayed } = await this.#untilAnswered(sent);
    if (isReplayed) this.found++;
  }

  /** What has no answer yet rejects. */
  close(): void {
    this.#isClosed = true;
  }

  /** @throws when it is refused, or is not the delivery that it was before */
  async #untilAnswered(sent: Sent): Promise<Answer> {
    const { publication } = sent;
    for (;;) {
      if (this.#isClosed) throw new Error(`${publication.analysisId} was given up`);
      const answer = await this.#ask(sent);
      const { status, body } = answer;
      if (status === 202) {
        const { delivery_id: deliveryId = null } = body;
        publication.deliveryId ??= deliveryId;
        if (publication.acknowledgedAtMs === null) this.acknowledged++;
        publication.acknowledgedAtMs ??= Date.now();
        if (body.analysis_id === publication.analysisId && deliveryId === publication.deliveryId)
          return answer;
        throw new Error(`${publication.analysisId} was ${publication.deliveryId}: ${JSON.stringify(body)}`);
      }
      if (body.code === "idempotency_in_progress") this.inProgress++;
      else if (status === 0 || status >= 500) publication.wasInDoubt = true;
      else throw new Error(`${publication.analysisId} was refused: ${status} ${JSON.stringify(body)}`);
      await wait(REPEAT_AFTER_MS);
    }
  }

  /** Status 0: there was no answer. */
  async #ask({ customer, body, idempotencyKey }: Sent): Promise<Answer> {
    try {
      const response = await fetch(new URL("/v1/analyses", this.#pickUrl()), {
        method: "POST",
        headers: {
          authorization: `Bearer ${customer.apiKey}`,
          "content-type": "application/json",
          "idempotency-key": idempotencyKey,
        },
        body,
        signal: patientSignal(ANSWER_WITHIN_MS),
      });
      return {
        status: response.status,
        isReplayed: response.headers.get("idempotent-replayed") === "true",
        body: (await response.json()) as Answer["body"],
      };
    } catch (error) {
      const { code } = ((error as Error).cause ?? error) as NodeJS.ErrnoException;
      // Where nobody listens nothing was sent.
      if (code !== "ECONNREFUSED") this.cut++;
      return { status: 0, isReplayed: false, body: {} };
    }
  }
}
