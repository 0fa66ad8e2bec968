import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { importSigningKey } from "../signing/index.ts";
import { webhookBody } from "../webhook/envelope.ts";
import { webhookHeaders, webhookSignature } from "../webhook/headers.ts";

export const FORGED_ANALYSIS_ID = "invoice-6666";

/**
 * POSTs a well-formed webhook that is signed with another secret, as someone could who knows only the URL. Resolves to
 * the HTTP status of the answer.
 * @param nowMs Unix time in milliseconds
 */
export async function postForgery(
  url: string,
  options: { readonly caFile: string; readonly nowMs: number; readonly signal: AbortSignal },
): Promise<number> {
  const { caFile, nowMs, signal } = options;
  const body = webhookBody({
    id: randomUUID(),
    event: "analysis.succeeded",
    createdAtMs: nowMs,
    analysisText: `{"id":"${FORGED_ANALYSIS_ID}","status":"succeeded"}`,
  });
  const wrongKey = importSigningKey(`whsec_${randomBytes(32).toString("base64")}`);
  const signature = webhookSignature(body, [wrongKey], nowMs);
  const outgoing = request(url, {
    method: "POST",
    ca: await readFile(caFile, "utf8"),
    signal,
    agent: false,
    // Not every system's resolver knows that names under localhost are this machine.
    lookup: (_hostname, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]),
    headers: webhookHeaders({ signature, traceparent: null }),
  });
  outgoing.end(body);
  const [response] = (await once(outgoing, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}
