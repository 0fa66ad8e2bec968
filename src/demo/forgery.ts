import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { importSigningKey } from "../signing/index.ts";
import { webhookBody } from "../webhook/envelope.ts";
import { webhookHeaders, webhookSignature } from "../webhook/headers.ts";

/**
 * POSTs an event that nobody published, as a stranger would who knows the URL but not the signing secret.
 * Resolves to the status of the answer.
 */
export async function postForgery(
  url: string,
  options: {
    readonly analysisId: string;
    /** Milliseconds since the epoch. */
    readonly nowMs: number;
    readonly ca: string;
    readonly signal: AbortSignal;
  },
): Promise<number> {
  const { analysisId, nowMs, ca, signal } = options;
  const body = webhookBody({
    id: randomUUID(),
    event: "analysis.succeeded",
    createdAtMs: nowMs,
    analysisText: `{"id":"${analysisId}","status":"succeeded"}`,
  });
  const guess = importSigningKey(`whsec_${randomUUID()}`);
  const sending = request(url, {
    method: "POST",
    ca,
    signal,
    agent: false,
    // Names under localhost are this machine, whether or not its resolver knows that.
    lookup: (_hostname, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]),
    headers: webhookHeaders({ signature: webhookSignature(body, [guess], nowMs), traceparent: null }),
  });
  sending.end(body);
  const [response] = (await once(sending, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}
