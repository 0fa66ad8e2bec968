import { randomUUID } from "node:crypto";
import type { EndReason } from "../model/end-reasons.ts";
import type { Outcome } from "../model/outcomes.ts";
import type { DeliveryStatus } from "../model/statuses.ts";

/** An attempt as the API shows it, as far as the demo looks. */
export type ShownAttempt = {
  readonly run: number;
  readonly number: number;
  readonly started_at: string;
  readonly ended_at: string;
  readonly outcome: Outcome;
  readonly error_code: string | null;
  readonly status_code: number | null;
};

export type ShownDelivery = {
  readonly id: string;
  readonly analysis_id: string;
  readonly status: DeliveryStatus;
  readonly reason: EndReason | null;
  readonly run: number;
  readonly attempts_count: number;
};

export type DemoApi = {
  readonly url: string;
  readonly key: string;
  deliveries(): Promise<readonly ShownDelivery[]>;
  attempts(deliveryId: string): Promise<readonly ShownAttempt[]>;
  /** Asks for a replay; returns the status. */
  replay(deliveryId: string): Promise<number>;
  /** Status and exact text of the answer to polling. */
  analysis(analysisId: string): Promise<{ readonly status: number; readonly text: string }>;
};

/** The API as a customer's program uses it: over HTTP, with a key. */
export function createDemoApi(url: string, key: string, signal: AbortSignal): DemoApi {
  async function ask(method: "GET" | "POST", path: string): Promise<Response> {
    const headers: Record<string, string> = { authorization: `Bearer ${key}` };
    if (method === "POST") headers["idempotency-key"] = randomUUID();
    return await fetch(`${url}/v1${path}`, { method, headers, signal });
  }

  async function read<T>(path: string): Promise<T> {
    const response = await ask("GET", path);
    if (response.ok) return (await response.json()) as T;
    throw new Error(`The API answered ${response.status} to GET ${path}: ${await response.text()}`);
  }

  return {
    url,
    key,
    deliveries: async () => (await read<{ items: ShownDelivery[] }>("/webhooks/deliveries?limit=100")).items,
    attempts: async (id) => (await read<{ attempts: ShownAttempt[] }>(`/webhooks/deliveries/${id}`)).attempts,
    replay: async (id) => (await ask("POST", `/webhooks/deliveries/${id}/replay`)).status,
    analysis: async (id) => {
      const response = await ask("GET", `/analyses/${id}`);
      return { status: response.status, text: await response.text() };
    },
  };
}
