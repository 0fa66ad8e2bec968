import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { hasEnded } from "../../base/model/statuses.ts";
import type { Delivery } from "../../log/delivery-schema.ts";

export type DemoApi = ReturnType<typeof createDemoApi>;

/** Uses the API as a customer's program does: over HTTP, with an API key. */
export function createDemoApi(baseUrl: string, key: string, signal: AbortSignal) {
  /**
   * @param request method and path: `GET /analyses/invoice-1001`
   * @param body sent as it is; an object as JSON
   */
  async function send(request: string, body?: string | object, headers: Record<string, string> = {}) {
    const [method = "", path] = request.split(" ");
    const isJson = typeof body === "object";
    const response = await fetch(`${baseUrl}/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(method !== "GET" && { "idempotency-key": randomUUID() }),
        ...(isJson && { "content-type": "application/json" }),
        ...headers,
      },
      ...(body !== undefined && { body: isJson ? JSON.stringify(body) : body }),
      signal,
    });
    return { status: response.status, text: await response.text() };
  }

  /** @throws Error unless it succeeds */
  async function ask<T>(...request: Parameters<typeof send>): Promise<T> {
    const { status, text } = await send(...request);
    if (status < 300) return JSON.parse(text) as T;
    throw new Error(`The API answered ${status} to ${request[0]}: ${text}`);
  }

  const deliveries = async () =>
    (await ask<{ readonly items: readonly Delivery[] }>("GET /webhooks/deliveries?limit=100")).items;

  /** Reads until it is done; resolves to what was read last. */
  async function poll<T>(read: () => Promise<T>, isDone: (found: T) => boolean): Promise<T> {
    for (;;) {
      const found = await read();
      if (isDone(found)) return found;
      await delay(POLL_EVERY_MS, undefined, { signal });
    }
  }

  /** Resolves to these deliveries when each has succeeded or is abandoned. */
  async function untilEnded(deliveryIds: readonly string[]): Promise<readonly Delivery[]> {
    const find = async () => (await deliveries()).filter(({ id }) => deliveryIds.includes(id));
    return await poll(
      find,
      (found) => found.length === deliveryIds.length && found.every(({ status }) => hasEnded(status)),
    );
  }

  return { send, ask, deliveries, poll, untilEnded };
}

const POLL_EVERY_MS = 200;
