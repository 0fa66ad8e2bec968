import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type DeliveryStatus, hasEnded } from "../../base/model/statuses.ts";

export type Answer = { readonly status: number; readonly text: string };

/** Uses the API as a customer's program does: over HTTP, with an API key. */
export class DemoApi {
  readonly #url: string;
  readonly #key: string;
  readonly #signal: AbortSignal;

  constructor(url: string, key: string, signal: AbortSignal) {
    this.#url = url;
    this.#key = key;
    this.#signal = signal;
  }

  /**
   * @param request method and path: `GET /analyses/invoice-1001`
   * @param body sent as it is; an object as JSON
   */
  async send(request: string, body?: string | object, headers: Record<string, string> = {}): Promise<Answer> {
    const [method = "", path] = request.split(" ");
    const isJson = typeof body === "object";
    const response = await fetch(`${this.#url}/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.#key}`,
        ...(method !== "GET" && { "idempotency-key": randomUUID() }),
        ...(isJson && { "content-type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body: isJson ? JSON.stringify(body) : body }),
      signal: this.#signal,
    });
    return { status: response.status, text: await response.text() };
  }

  /** @throws Error unless it succeeds */
  async ask<T>(...request: Parameters<DemoApi["send"]>): Promise<T> {
    const { status, text } = await this.send(...request);
    if (status < 300) return JSON.parse(text) as T;
    throw new Error(`The API answered ${status} to ${request[0]}: ${text}`);
  }

  async deliveries(): Promise<readonly ApiDelivery[]> {
    const { items } = await this.ask<{ items: ApiDelivery[] }>("GET /webhooks/deliveries?limit=100");
    return items;
  }

  /** Resolves to these deliveries when each has succeeded or is abandoned. */
  async untilEnded(deliveryIds: readonly string[]): Promise<readonly ApiDelivery[]> {
    const find = async () => (await this.deliveries()).filter(({ id }) => deliveryIds.includes(id));
    const isDone = (found: readonly ApiDelivery[]) =>
      found.length === deliveryIds.length && found.every(({ status }) => hasEnded(status));
    return await this.poll(find, isDone);
  }

  /** Reads until it is done; resolves to what was read last. */
  async poll<T>(read: () => Promise<T>, isDone: (found: T) => boolean): Promise<T> {
    for (;;) {
      const found = await read();
      if (isDone(found)) return found;
      await delay(POLL_EVERY_MS, undefined, { signal: this.#signal });
    }
  }
}

const POLL_EVERY_MS = 200;

/** The fields of a delivery in the API that the demo uses. */
export type ApiDelivery = {
  readonly id: string;
  readonly analysis_id: string;
  readonly status: DeliveryStatus;
  readonly run: number;
  readonly attempts_count: number;
};
