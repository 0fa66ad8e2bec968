import { randomUUID } from "node:crypto";
import type { Pool } from "pg";
import { z } from "zod";
import { event } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { writeAuditEntry } from "../base/database/audit-log.ts";
import { type Counted, createRequestCounter } from "../base/database/rate-limits.ts";
import { actorOf } from "../base/model/audit.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { Published, throwAsProblem } from "../delivery/analyses-api.ts";
import { findEndpoint } from "../delivery/endpoint-sql.ts";
import { isRefusing, refuseUrl } from "../delivery/receivers-sql.ts";
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

/** The check sends up to 18 POSTs to a URL that the caller chose: unlimited, it could be abused for floods. */
export const CHECK_POLICY: RateLimitPolicy = { name: "check", requestsMax: 1, windowSeconds: 60 };

const TestEvent = z.strictObject({ event: event.default("analysis.succeeded") });

export type ReceiverDependencies = {
  readonly pool: Pool;
  /** Opens and seals signing secrets. */
  readonly secretsKey: SecretsKey;
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
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
  checkReceiver,
  checkPolicy,
}: ReceiverDependencies): readonly Operation[] {
  const countCheck = createRequestCounter(pool);
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
        "Checks that the endpoint's receiver accepts genuine webhooks and rejects forged ones: sends 14 probes and " +
        "up to 3 trials of the secret, marked with `sealpost-probe: 1`, within 20 seconds and reports what the " +
        "receiver gets wrong, accepted forgeries first, and during a rotation which of the two secrets it accepts. " +
        "Once a minute per account; a 429 carries the RateLimit headers of this limit. 404 while no endpoint is set.",
      method: "POST",
      path: `${path}/check`,
      scope: "webhooks:write",
      risk: "reversible",
      callsOut: { deadlineMs: CHECK_LIMIT_MS },
      audit: { elsewhere: "the handler writes its row before the first probe, so that no crash hides one" },
      response: jsonResponse(200, ReceiverCheck),
      errors: ["not_found", "target_refused", "refused_by_receiver"],
      handle: async ({ accountId, caller, requestId, problem }) => {
        const endpoint = await findEndpoint(pool, accountId);
        if (endpoint === null) throw problem("not_found");
        if (await isRefusing(pool, accountId, endpoint.url)) throw problem("refused_by_receiver");
        const judged = judgeTargetUrl(endpoint.url, { unsafeAllowedTargets });
        if (judged.verdict === "refuse") {
          throw problem("target_refused", [{ path: "endpoint.url", message: judged.message }]);
        }
        const secrets = await findSigningSecrets(pool, accountId, secretsKey);
        await refuseTooMany(checkPolicy, countCheck(`check:${accountId}`, checkPolicy));
        const at = await writeAuditEntry(pool, {
          accountId,
          actor: actorOf(caller),
          requestId,
          operationKey: "webhooks.endpoint.check",
          details: { url: judged.href },
        });
        const sent = { secrets: secrets.map(({ secret }) => secret), nowMs: at.getTime() };
        const onRefusal = () => refuseUrl(pool, accountId, endpoint.url);
        return { body: await checkReceiver({ url: judged.url, onRefusal, ...sent }) };
      },
    }),
  ];
}

/** Fails closed: without a count nothing is sent. */
async function refuseTooMany(policy: RateLimitPolicy, counting: Promise<Counted>): Promise<void> {
  const counted = await counting.catch((cause: unknown) => {
    throw new TemporarilyUnavailable("the check could not be counted", { cause });
  });
  const { isAllowed, resetSeconds, headers } = countedState(policy, counted);
  if (isAllowed) return;
  throw new Problem("rate_limited", { headers: { ...headers, "retry-after": String(resetSeconds) } });
}
