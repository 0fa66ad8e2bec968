import { patientSignal } from "../support/time-limits.ts";
export type ApiCall = {
  readonly method: "GET" | "POST" | "PUT";
  readonly path: string;
  readonly apiKey: string;
  /** JSON, sent as it stands. */
  readonly body?: string;
  readonly idempotencyKey?: string;
};

export type ApiReply = {
  readonly status: number;
  readonly text: string;
  /** Null: the answer has no such header. */
  readonly retryAfter: string | null;
};

const TIMEOUT_MS = 15_000;

/** Rejects when there is no answer. */
export async function call(url: string, asked: ApiCall): Promise<ApiReply> {
  const { method, path, apiKey, body, idempotencyKey } = asked;
  const response = await fetch(new URL(path, url), {
    method,
    headers: {
      authorization: `Bearer ${apiKey}`,
      ...(body !== undefined && { "content-type": "application/json" }),
      ...(idempotencyKey !== undefined && { "idempotency-key": idempotencyKey }),
    },
    ...(body !== undefined && { body }),
    signal: patientSignal(TIMEOUT_MS),
  });
  const retryAfter = response.headers.get("retry-after");
  return { status: response.status, text: await response.text(), retryAfter };
}
