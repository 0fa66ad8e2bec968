import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { z } from "zod";
import { event } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { writeEntryUnlessErased } from "../base/database/audit-log.ts";
import { type Counted, createRequestCounter } from "../base/database/rate-limits.ts";
import { actorOf } from "../base/model/audit.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { Published, throwAsProblem } from "../delivery/analyses-api.ts";
import { unsealHeaders } from "../delivery/endpoint-headers.ts";
import { findEndpoint } from "../delivery/endpoint-sql.ts";
import { createTurn, receiverTurns } from "../delivery/receiver-turns.ts";
import { isProven, isRefusing, refuseUrl } from "../delivery/receivers-sql.ts";
import { findSigningSecrets } from "../delivery/signing-secrets-sql.ts";
import { exampleAnalysis } from "../delivery/webhook.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/host.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { Problem, TemporarilyUnavailable } from "../http/problems.ts";
import { countedState, type RateLimitPolicy } from "../http/rate-limits.ts";
import { publishExample } from "../publish/publish-call-sql.ts";
import { CHECK_LIMIT_MS, type CheckReceiver, ReceiverCheck } from "./receiver-check.ts";

const { callOut, write } = operationsOf("Endpoint");
const path = "/v1/webhooks/endpoint";

/** The check sends up to 19 POSTs to a URL that the caller chose: unlimited, it could be abused for floods. */
export const CHECK_POLICY: RateLimitPolicy = { name: "check", requestsMax: 1, windowSeconds: 60 };

const TestEvent = z.strictObject({ event: event.default("analysis.succeeded") });

export type ReceiverDependencies = {
  readonly pool: Pool;
  /** Opens and seals signing secrets. */
  readonly secretsKey: SecretsKey;
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  /** Whether a receiver there has to prove that it wants webhooks, as for deliveries. */
  readonly mustProve: (url: URL) => boolean;
  /** Sends probes to a receiver. */
  readonly checkReceiver: CheckReceiver;
  /** How often one account may have that done. */
  readonly checkPolicy: RateLimitPolicy;
};

/** For building a receiver: an example event, and a check of the receiver. */
export function receiverOperations({
  pool,
  secretsKey,
  unsafeAllowedTargets,
  mustProve,
  checkReceiver,
  checkPolicy,
}: ReceiverDependencies): readonly Operation[] {
  const countCheck = createRequestCounter(pool);
  /** Null: it is proven, or need not be. */
  async function findTurn(accountId: string, url: URL, spelled: string) {
    const turns = receiverTurns(pool, pool);
    if (!mustProve(url) || (await isProven(pool, accountId, url.origin))) return null;
    return createTurn({ accountId, isFirst: true }, spelled, turns, CHECK_LIMIT_MS);
  }
  return [
    write({
      key: "webhooks.endpoint.test",
      summary: "Send a test event",
      description:
        "Publishes an example event and delivers it to the endpoint like any other: signed, retried, in the log, " +
        "and with a readable analysis. Its `data.example` is true. 404 while no endpoint is set.",
      method: "POST",
      path: `${path}/test`,
      scope: "webhooks:write",
      risk: "reversible",
      mode: "async",
      body: jsonBody(TestEvent, { isOptional: true }),
      audit: ({ body }, result) => ({ event: body.event, ...result.body }),
      response: jsonResponse(202, Published),
      errors: ["not_found"],
      handle: async ({ accountId, body, problem }, tx) => {
        if ((await findEndpoint(tx, accountId)) === null) throw problem("not_found");
        // Like any other: readable, in the log, and replayable.
        const analysis_id = `example-${randomUUID()}`;
        const analysis = exampleAnalysis(body.event, analysis_id);
        // The account may be moved just now.
        const published = publishExample(tx, { accountId, analysis, webhookUrl: null }).catch(throwAsProblem);
        const [delivery_id] = await published;
        return { body: { analysis_id, delivery_id: delivery_id! } };
      },
    }),
    callOut({
      key: "webhooks.endpoint.check",
      summary: "Check the receiver",
      description:
        "Checks that the endpoint's receiver accepts genuine webhooks and rejects forged ones: sends 14 probes, " +
        "up to 3 trials of the secret and a challenge, marked with `sealpost-probe: 1`, within 20 seconds and " +
        "reports what the receiver gets wrong, accepted forgeries first, and during a rotation which of the two " +
        "secrets it accepts. A receiver that has returned no 2xx in the last 30 days gets one POST, and the others " +
        "only if it accepts that; where another is due first, 409 `receiver_not_proven` says when to check again. " +
        "Once a minute per account; a 429 carries the RateLimit headers of this limit. 404 while no endpoint is set.",
      method: "POST",
      path: `${path}/check`,
      scope: "webhooks:write",
      risk: "reversible",
      callsOut: { deadlineMs: CHECK_LIMIT_MS },
      audit: { elsewhere: "the handler writes its row before the first probe, so that no crash hides one" },
      response: jsonResponse(200, ReceiverCheck),
      errors: ["not_found", "target_refused", "refused_by_receiver", "receiver_not_proven"],
      handle: async ({ accountId, caller, requestId, problem }) => {
        const endpoint = await findEndpoint(pool, accountId);
        if (endpoint === null) throw problem("not_found");
        if (await isRefusing(pool, accountId, endpoint.url)) throw problem("refused_by_receiver");
        const judged = judgeTargetUrl(endpoint.url, { unsafeAllowedTargets });
        if (judged.verdict === "refuse") {
          throw problem("target_refused", [{ path: "endpoint.url", message: judged.message }]);
        }
        const secrets = await findSigningSecrets(pool, accountId, secretsKey);
        const againSeconds = await refuseTooMany(checkPolicy, countCheck(`check:${accountId}`, checkPolicy));
        const at = await writeEntryUnlessErased(pool, {
          accountId,
          actor: actorOf(caller),
          requestId,
          operationKey: "webhooks.endpoint.check",
          details: { url: judged.href },
        });
        if (at === null) throw new Problem("unauthorized");
        const sent = {
          secrets: secrets.map(({ secret }) => secret),
          signsStandard: endpoint.signature_schemes.includes("standard"),
          headers: unsealHeaders(endpoint.sealedHeaders, endpoint.url, accountId, secretsKey),
          nowMs: at.getTime(),
        };
        const onRefusal = () => refuseUrl(pool, accountId, endpoint.url);
        const found = await findTurn(accountId, judged.url, endpoint.url);
        const refused = (restMs: number) => {
          const seconds = Math.max(againSeconds, Math.ceil(restMs / 1_000));
          return new Problem("receiver_not_proven", { headers: { "retry-after": String(seconds) } });
        };
        const turn = found === null ? undefined : { ...found, refused };
        return { body: await checkReceiver({ url: judged.url, turn, onRefusal, ...sent }) };
      },
    }),
  ];
}

/** Fails closed: without a count nothing is sent. Returns in how many seconds there may be another. */
async function refuseTooMany(policy: RateLimitPolicy, counting: Promise<Counted>): Promise<number> {
  const counted = await counting.catch((cause: unknown) => {
    throw new TemporarilyUnavailable("the check could not be counted", { cause });
  });
  const { isAllowed, resetSeconds, headers } = countedState(policy, counted);
  if (isAllowed) return resetSeconds;
  throw new Problem("rate_limited", { headers: { ...headers, "retry-after": String(resetSeconds) } });
}
