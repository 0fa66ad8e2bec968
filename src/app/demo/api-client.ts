import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { explainErrorCode } from "../../base/model/error-codes.ts";
import { type DeliveryStatus, type EndReason, hasEnded, type Outcome } from "../../base/model/statuses.ts";
import type { DemoOutput } from "./output.ts";

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

const POLL_EVERY_MS = 100;
const ATTEMPTS_PER_RUN = 8;

/** Prints every attempt once, as soon as it is in the delivery log. */
export type DeliveryWatch = {
  /** Resolves to these deliveries when each has succeeded or is abandoned. */
  untilEnded(deliveryIds: readonly string[]): Promise<readonly ApiDelivery[]>;
};

type NewAttempt = {
  readonly delivery: ApiDelivery;
  readonly attempt: ApiAttempt;
  readonly previous?: ApiAttempt;
};

/** @param receiverOf returns the host name of an analysis's receiver */
export function createDeliveryWatch(
  api: ApiClient,
  output: DemoOutput,
  receiverOf: (analysisId: string) => string,
  signal: AbortSignal,
): DeliveryWatch {
  const shown = new Map<string, number>();

  /** Attempts of all deliveries that have ended since the last call, in the order of their ends. */
  async function findNewAttempts(deliveries: readonly ApiDelivery[]): Promise<readonly NewAttempt[]> {
    const found: NewAttempt[] = [];
    for (const delivery of deliveries) {
      const count = shown.get(delivery.id) ?? 0;
      if (delivery.attempts_count <= count) continue;
      const attempts = await api.attempts(delivery.id);
      shown.set(delivery.id, attempts.length);
      attempts.slice(count).forEach((attempt, index) => {
        const previous = attempts[count + index - 1];
        found.push({ delivery, attempt, ...(previous?.run === attempt.run ? { previous } : {}) });
      });
    }
    return found.sort((one, other) => Date.parse(one.attempt.ended_at) - Date.parse(other.attempt.ended_at));
  }

  function print({ delivery, attempt, previous }: NewAttempt): void {
    const { id: delivery_id, analysis_id } = delivery;
    const { run, number, outcome, status_code, error_code } = attempt;
    const hasSucceeded = outcome === "succeeded";
    const mark = hasSucceeded ? output.green("✓") : output.red("✗");
    const sincePrevious =
      previous === undefined ? "" : `, ${secondsBetween(previous.ended_at, attempt.started_at)} later`;
    const which = `(${run > 1 ? "replay, " : ""}attempt ${number} of ${ATTEMPTS_PER_RUN}${sincePrevious})`;
    const fields = { analysis_id, delivery_id, run, number, outcome, status_code, error_code };
    const text = `${mark} ${analysis_id.padEnd(14)}  ${outcomeText(receiverOf(analysis_id), attempt)}`;
    output.line("attempt", fields, `${text}  ${output.dim(which)}`, Date.parse(attempt.ended_at));
    if (hasSucceeded || number < ATTEMPTS_PER_RUN) return;
    const end = `  ${analysis_id.padEnd(14)}  abandoned after the last attempt; it can be replayed for 7 days`;
    output.line("abandoned", { analysis_id, delivery_id, run }, end, Date.parse(attempt.ended_at));
  }

  return {
    untilEnded: async (deliveryIds) => {
      for (;;) {
        const deliveries = (await api.deliveries()).filter(({ id }) => deliveryIds.includes(id));
        for (const attempt of await findNewAttempts(deliveries)) print(attempt);
        if (deliveries.length === deliveryIds.length && deliveries.every(({ status }) => hasEnded(status)))
          return deliveries;
        await delay(POLL_EVERY_MS, undefined, { signal });
      }
    },
  };
}

function outcomeText(receiver: string, { outcome, status_code, error_code }: ApiAttempt): string {
  if (outcome === "succeeded") return `delivered: ${receiver} answered ${status_code}`;
  if (status_code !== null) return `failed: ${receiver} answered ${status_code}`;
  return `failed: ${receiver}. ${explainErrorCode(error_code ?? "").message}`;
}

function secondsBetween(from: string, to: string): string {
  return `${((Date.parse(to) - Date.parse(from)) / 1_000).toFixed(2)} s`;
}
