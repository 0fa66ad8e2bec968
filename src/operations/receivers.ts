import { randomUUID } from "node:crypto";
import { z } from "zod";
import type { Operation } from "../api/operation.ts";
import { jsonBody, jsonResponse } from "../api/operation-io.ts";
import { Problem, TemporarilyUnavailable } from "../api/problems.ts";
import { countedState, type RateLimitPolicy } from "../api/rate-limits.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { actorOf } from "../model/audit.ts";
import { CHECK_LIMIT_MS } from "../receivers/receiver-check.ts";
import { publishTestEvent } from "../receivers/test-event.ts";
import { writeAuditEntry } from "../store/audit-log.ts";
import { findEndpoint } from "../store/endpoints.ts";
import { type Counted, createRequestCounter } from "../store/rate-limits.ts";
import { findSigningSecrets } from "../store/signing-secrets.ts";
import { Published, throwAsProblem } from "./analyses.ts";
import { event } from "./fields.ts";
import { ReceiverCheck, receiverCheckBody } from "./receiver-check-schema.ts";
import type { Dependencies } from "./sealpost-operation.ts";
import { callOut, write } from "./sealpost-operation.ts";

const tag = "Endpoint";
const path = "/v1/webhooks/endpoint";

/** The check sends up to 18 POSTs to a URL that the caller chose: unlimited, it could be abused for floods. */
export const CHECK_POLICY: RateLimitPolicy = { name: "check", requestsMax: 1, windowSeconds: 60 };

const TestEvent = z.strictObject({ event: event.default("analysis.succeeded") });

/** For building a receiver: an example event, and a check of the receiver. */
export function receiverOperations(dependencies: Dependencies): readonly Operation[] {
  const { pool, secretsKey, unsafeAllowedTargets, checkReceiver, checkPolicy } = dependencies;
  const countCheck = createRequestCounter(pool);
  return [
    write({
      key: "webhooks.endpoint.test",
      tag,
      summary: "Send a test event",
      description:
        "Publishes an example event and delivers it to the endpoint like any other: signed, retried, in the log, " +
        "and with a readable analysis. Its `data.example` is true. 404 while no endpoint is set.",
      method: "POST",
      path: `${path}/test`,
      scope: "webhooks:write",
      risk: "reversible",
      mode: "async",
      idempotency: "key_required",
      body: jsonBody(TestEvent, { isOptional: true }),
      audit: ({ body }, result) => ({ event: body.event, ...result.body }),
      response: jsonResponse(202, Published),
      errors: ["not_found"],
      handle: async ({ accountId, body, problem }, tx) => {
        if ((await findEndpoint(tx, accountId)) === null) throw problem("not_found");
        const publishing = publishTestEvent(tx, accountId, body.event, randomUUID);
        // The account may be moved just now.
        const { analysisId, deliveryId } = await publishing.catch(throwAsProblem);
        return { body: { analysis_id: analysisId, delivery_id: deliveryId } };
      },
    }),
    callOut({
      key: "webhooks.endpoint.check",
      tag,
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
      mode: "sync",
      idempotency: "key_required",
      callsOut: { deadlineMs: CHECK_LIMIT_MS },
      audit: { elsewhere: "the handler writes its row before the first probe, so that no crash hides one" },
      response: jsonResponse(200, ReceiverCheck),
      errors: ["not_found", "target_refused"],
      handle: async ({ accountId, caller, requestId, problem }) => {
        const endpoint = await findEndpoint(pool, accountId);
        if (endpoint === null) throw problem("not_found");
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
        const receiver = {
          url: judged.url,
          secrets: secrets.map(({ secret }) => secret),
          atMs: at.getTime(),
        };
        return { body: receiverCheckBody(judged.href, at.getTime(), await checkReceiver(receiver)) };
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
