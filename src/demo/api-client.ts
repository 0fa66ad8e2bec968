import { randomUUID } from "node:crypto";
import type { EndReason } from "../model/end-reasons.ts";
import type { Outcome } from "../model/outcomes.ts";
import type { DeliveryStatus } from "../model/statuses.ts";

/** The fields of an attempt in the API that the demo uses. */
export type ApiAttempt = {
  readonly run: number;
  readonly number: number;
  readonly started_at: string;
  readonly ended_at: string;
  readonly outcome: Outcome;
  readonly error_code: string | null;
  readonly status_code: number | null;
};

export type ApiDelivery = {
  readonly id: string;
  readonly analysis_id: string;
  readonly status: DeliveryStatus;
  readonly reason: EndReason | null;
  readonly run: number;
  readonly attempts_count: number;
};

export type ApiClient = {
  deliveries(): Promise<readonly ApiDelivery[]>;
  attempts(deliveryId: string): Promise<readonly ApiAttempt[]>;
  /** Requests a replay; returns the HTTP status. */
  replay(deliveryId: string): Promise<number>;
  /** HTTP status and exact text of `GET /v1/analyses/{id}`. */
  analysis(analysisId: string): Promise<{ readonly status: number; readonly text: string }>;
};

/** Uses the API as a customer's program does: over HTTP, with an API key. */
export function createApiClient(url: string, key: string, signal: AbortSignal): ApiClient {
  async function send(method: "GET" | "POST", path: string): Promise<Response> {
    const headers: Record<string, string> = { authorization: `Bearer ${key}` };
    if (method === "POST") headers["idempotency-key"] = randomUUID();
    return await fetch(`${url}/v1${path}`, { method, headers, signal });
  }

  async function read<T>(path: string): Promise<T> {
    const response = await send("GET", path);
    if (response.ok) return (await response.json()) as T;
    throw new Error(`The API answered ${response.status} to GET ${path}: ${await response.text()}`);
  }

  return {
    deliveries: async () => (await read<{ items: ApiDelivery[] }>("/webhooks/deliveries?limit=100")).items,
    attempts: async (id) => (await read<{ attempts: ApiAttempt[] }>(`/webhooks/deliveries/${id}`)).attempts,
    replay: async (id) => (await send("POST", `/webhooks/deliveries/${id}/replay`)).status,
    analysis: async (id) => {
      const response = await send("GET", `/analyses/${id}`);
      return { status: response.status, text: await response.text() };
    },
  };
}
