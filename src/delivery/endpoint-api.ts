import { z } from "zod";
import { targetUrl, time } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { judgeTargetUrl } from "../egress/rules/target-url.ts";
import { type Caller, emptyResponse, jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { invalidRequest } from "../http/problems.ts";
import type { AnalysisDependencies } from "./analyses-api.ts";
import { HeaderValueMissing, NewEndpointHeaders, shownHeaders, unsealHeaders } from "./endpoint-headers.ts";
import { Endpoint, SIGNATURE_SCHEMES } from "./endpoint-schema.ts";
import * as store from "./endpoint-sql.ts";
import { isRefusing, liftRefusal } from "./receivers-sql.ts";

const { read, write } = operationsOf("Endpoint");
const path = "/v1/webhooks/endpoint";

const NewEndpoint = z.strictObject({
  url: targetUrl.describe("A public https:// URL of at most 2,048 characters."),
  payload: Endpoint.shape.payload.optional(),
  forget_after_success: Endpoint.shape.forget_after_success.optional(),
  signature_schemes: z
    .array(z.enum(SIGNATURE_SCHEMES))
    .max(SIGNATURE_SCHEMES.length)
    .refine((schemes) => schemes.includes("extract"), {
      error: "Must contain extract, which is always sent.",
    })
    .refine((schemes) => new Set(schemes).size === schemes.length, { error: "Must name each scheme once." })
    .optional()
    .describe(
      "`standard` adds the headers of Standard Webhooks. Absent: as they are, at first `extract` alone.",
    ),
  headers: NewEndpointHeaders.optional(),
  expected_updated_at: time
    .optional()
    .describe(
      "`updated_at` of the endpoint that this was made of, so that what somebody else changes meanwhile is not lost.",
    ),
});

/** As it is shown to whoever asks. */
type BodyOf = (accountId: string, endpoint: store.StoredEndpoint, caller: Caller) => Endpoint;

/** The account's configured URL. */
export function endpointOperations({
  pool,
  unsafeAllowedTargets,
  secretsKey,
}: AnalysisDependencies): readonly Operation[] {
  const bodyOf: BodyOf = (accountId, { sealedHeaders, ...endpoint }, { userId }) => ({
    ...endpoint,
    held: userId === null ? endpoint.held : null,
    headers: shownHeaders(unsealHeaders(sealedHeaders, endpoint.url, accountId, secretsKey)),
  });
  return [
    read({
      key: "webhooks.endpoint.get",
      summary: "Get the endpoint",
      description: "The account's endpoint; 404 while none is set.",
      path,
      scope: "webhooks:read",
      response: jsonResponse(200, Endpoint),
      errors: ["not_found"],
      handle: async ({ accountId, caller, problem }) => {
        const endpoint = await store.findEndpoint(pool, accountId);
        if (endpoint === null) throw problem("not_found");
        return { body: bodyOf(accountId, endpoint, caller) };
      },
    }),
    write({
      key: "webhooks.endpoint.set",
      summary: "Set the endpoint",
      description:
        "Sets or replaces the account's endpoint. Every attempt from now on goes there, including those " +
        "of earlier deliveries. A paused one stays paused, and options that are not given stay as they are: at first " +
        "`payload` is `full`, nothing is forgotten, and there are no headers of your own. At another origin (scheme, " +
        "host and port) the secret headers are gone, so that nobody who may change the URL can read them there.",
      method: "PUT",
      path,
      scope: "webhooks:write",
      risk: "reversible",
      body: jsonBody(NewEndpoint),
      audit: ({ body: { url: _, expected_updated_at, headers, ...options } }, { body, audited }) => ({
        url: body.url,
        ...audited,
        ...options,
        headers: headers?.map(({ name }) => name),
      }),
      response: jsonResponse(200, Endpoint),
      errors: ["target_refused", "endpoint_options_conflict", "endpoint_changed"],
      handle: async ({ accountId, body, caller, problem }, tx) => {
        const judged = judgeTargetUrl(body.url, { unsafeAllowedTargets });
        if (judged.verdict === "refuse") {
          throw problem("target_refused", [{ path: "body.url", message: judged.message }]);
        }
        const { payload, forget_after_success: forgetsAfterSuccess, signature_schemes, headers } = body;
        const signsStandard = signature_schemes?.includes("standard");
        const { expected_updated_at: expectedUpdatedAt } = body;
        const change = { payload, forgetsAfterSuccess, signsStandard, headers, expectedUpdatedAt };
        const findSecretsKey = async () => secretsKey;
        const changed = store.changeEndpoint(tx, accountId, judged.href, change, findSecretsKey);
        const { endpoint, previousUrl: previous_url } = await changed.catch((error) => {
          if (error instanceof store.EndpointChanged) throw problem("endpoint_changed");
          return asInvalidRequest(error);
        });
        if (endpoint === null) throw problem("endpoint_options_conflict");
        return { body: bodyOf(accountId, endpoint, caller), audited: { previous_url } };
      },
    }),
    write({
      key: "webhooks.endpoint.remove",
      summary: "Remove the endpoint",
      description:
        "From now on only analyses with their own webhook_url are delivered; open deliveries to the endpoint are " +
        "abandoned as `no_target` when their next attempt is due.",
      method: "DELETE",
      path,
      scope: "webhooks:write",
      risk: "reversible",
      audit: () => ({}),
      response: emptyResponse(),
      errors: ["not_found"],
      handle: async ({ accountId, problem }, tx) => {
        if (!(await store.removeEndpoint(tx, accountId))) throw problem("not_found");
      },
    }),
    pausing("pause", store.pauseEndpoint, bodyOf, {
      summary: "Pause the endpoint",
      description:
        "Holds every delivery to the endpoint instead of sending it, waiting ones and new ones alike. Nothing " +
        "is lost, and no attempt or time is used up; when its analysis expires, a held delivery is abandoned as " +
        "`analysis_expired`. Attempts in flight end normally. Test events, receiver checks and analyses with their " +
        "own webhook_url still go out. Pausing again changes nothing.",
    }),
    pausing("resume", store.resumeEndpoint, bodyOf, {
      summary: "Resume the endpoint",
      description:
        "Ends a pause. What was held is delivered oldest first, up to 100 a second, alongside new ones; `held` " +
        "counts down. Each continues where it stopped: retries wait for the rest of their time.",
    }),
    write({
      key: "webhooks.refusals.lift",
      summary: "Lift a refusal",
      description:
        "A receiver that responds 410 with `webhook-refuse: 1` refuses the account at that URL, however spelled: " +
        "deliveries there are abandoned as `refused_by_receiver`. This allows another try, once a day for each URL. " +
        "404 where nothing was refused at the URL.",
      method: "POST",
      path: "/v1/webhooks/refusals/lift",
      scope: "webhooks:write",
      risk: "reversible",
      body: jsonBody(z.strictObject({ url: targetUrl })),
      audit: ({ body }) => ({ url: body.url }),
      response: emptyResponse(),
      errors: ["not_found", "refused_by_receiver"],
      handle: async ({ accountId, body, caller, problem }, tx) => {
        const { url } = body;
        if (!URL.canParse(url) || !(await isRefusing(tx, accountId, url))) throw problem("not_found");
        if (!(await liftRefusal(tx, accountId, url, caller.isStaff))) throw problem("refused_by_receiver");
      },
    }),
  ];
}

/** @param run false: there is no endpoint */
function pausing(
  act: "pause" | "resume",
  run: typeof store.pauseEndpoint,
  bodyOf: BodyOf,
  texts: { readonly summary: string; readonly description: string },
): Operation {
  return write({
    ...texts,
    key: `webhooks.endpoint.${act}`,
    path: `${path}/${act}`,
    method: "POST",
    scope: "webhooks:write",
    risk: "reversible",
    audit: () => ({}),
    response: jsonResponse(200, Endpoint),
    errors: ["not_found"],
    handle: async ({ accountId, caller, problem }, tx) => {
      if (!(await run(tx, accountId))) throw problem("not_found");
      return { body: bodyOf(accountId, (await store.findEndpoint(tx, accountId))!, caller) };
    },
  });
}

function asInvalidRequest(error: unknown): never {
  if (error instanceof HeaderValueMissing)
    throw invalidRequest(`body.headers.${error.at}.value`, error.message);
  throw error;
}
