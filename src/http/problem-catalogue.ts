import type { Operation } from "./operation.ts";
import type { ProblemCatalogue, ProblemKind } from "./problems.ts";

const NO_INTEGRATIONS = "this service has no integrations";

/** The codes that the kernel raises, one that the workspace does, and eight of the platform's that nothing raises. */
export const standardProblems = {
  invalid_request: {
    status: 400,
    meaning: "The request is not valid; `errors` names each invalid field.",
    remedy: "Correct the fields in `errors` and send the request again. Unchanged, it fails again.",
    hasErrors: true,
  },
  invalid_request_id: {
    status: 400,
    meaning:
      "X-Request-Id is longer than 128 characters, is not all printable ASCII, or contains a key or a secret.",
    remedy: "Send at most 128 printable ASCII characters, or omit the header to get a generated id.",
  },
  idempotency_key_required: {
    status: 400,
    meaning: "Every write requires an Idempotency-Key, and the request has none.",
    remedy:
      "Send an Idempotency-Key of 1 to 200 characters: a new one (a UUID, say) for each write, the same one when " +
      "you retry it.",
  },
  account_required: {
    status: 400,
    meaning: "The request uses a staff key and does not name an account.",
    remedy: "Send the account's id in the X-Account-Id header.",
  },
  unsafe_lifecycle_details: platformsOwn(
    400,
    "lifecycle details are unsafe",
    "no operation takes such details",
  ),
  unauthorized: {
    status: 401,
    meaning: "The API key is missing or not valid.",
    remedy:
      "Send `Authorization: Bearer <API key>`. Check that the key is complete, neither revoked nor expired, and " +
      "made for this environment: production and development have separate keys.",
  },
  billing_credits_exhausted: {
    status: 402,
    meaning:
      "The account would exceed what its operator lets it have of the workspace: `errors` names what. Nothing was " +
      "changed.",
    remedy:
      "Delete for good what is not needed (what is in the bin counts), wait until the next day (UTC) if it is about " +
      "runs a day, or ask the operator for more; `GET /v1/usage` shows what there is and what is left.",
    hasErrors: true,
  },
  access_denied: {
    status: 403,
    meaning:
      "The API key lacks the scope that the operation requires, the request names another account, the operation " +
      "goes across accounts and the key is not a staff key, or it needs a user and the key acts for none, or for one " +
      "whose role does not allow it.",
    remedy:
      "Use a key with the operation's scope (see `GET /v1/operations`), and omit X-Account-Id unless it is a " +
      "staff key. For spaces use a key that acts for a user, and ask an ADMIN of the space for a role.",
    hasErrors: true,
  },
  not_found: {
    status: 404,
    meaning: "The URL or the resource does not exist, or the resource belongs to another account.",
    remedy:
      "Check the URL and the id and, with a staff key, the account in X-Account-Id. Operations on the endpoint " +
      "need one to be set first.",
  },
  integration_not_found: platformsOwn(404, "there is no such integration", NO_INTEGRATIONS),
  method_not_allowed: {
    status: 405,
    meaning: "The URL exists, but not for this method.",
    remedy: "Use one of the methods in the response's Allow header.",
  },
  idempotency_in_progress: {
    status: 409,
    title: "Idempotency key in progress",
    meaning: "A request with the same Idempotency-Key is still in progress.",
    remedy: "Wait a moment, then retry with the same key: the retry gets the first request's response.",
  },
  account_moved: {
    status: 409,
    meaning:
      "The account has moved to another cell of this service, which `errors` names. Here it can only be read, until " +
      "it is deleted.",
    remedy:
      "Send the request there, with the same Idempotency-Key: requests answered here get the same answer there. If " +
      "you do not choose cells yourself, wait a moment and retry; report it if it persists.",
    hasErrors: true,
  },
  storage_full: {
    status: 409,
    meaning:
      "The account would exceed its limit for the kind of storage that `errors` names. Nothing was changed.",
    remedy:
      "Wait until something of that kind has been removed, or ask the operator for more; `GET /v1/usage` shows what " +
      "is stored and what is left.",
    hasErrors: true,
  },
  integration_disconnect_required: platformsOwn(409, "an integration is still connected", NO_INTEGRATIONS),
  route_retired: {
    status: 410,
    meaning: "The operation was deprecated and has been retired.",
    remedy: "See the reference for its replacement.",
  },
  payload_too_large: {
    status: 413,
    meaning: "The request body is larger than the operation accepts.",
    remedy: "Send a smaller body; the reference gives the limit.",
  },
  zip_too_large: platformsOwn(
    413,
    "a ZIP archive would be too large",
    "this service makes no archives. It refuses a body that is too large with `payload_too_large`, and one for which " +
      "the account has no room left with `storage_full`",
  ),
  unsupported_media_type: {
    status: 415,
    meaning:
      "The request body is not declared as plain JSON; or, where it is a file, it has a Content-Encoding, or its " +
      "Content-Type is not a media type.",
    remedy: "Send `Content-Type: application/json`, UTF-8; for a file, its media type. No Content-Encoding.",
  },
  range_not_satisfiable: {
    status: 416,
    meaning:
      "The Range header asks for bytes beyond the end; Content-Range in the response gives the length.",
    remedy: "Ask for a range within the length, or omit Range to get everything.",
  },
  idempotency_key_reused: {
    status: 422,
    meaning: "The Idempotency-Key was already used for a different request.",
    remedy: "Use a new key for each new request; reuse a key only to retry the identical request.",
  },
  rate_limited: {
    status: 429,
    meaning: "The limit in the response's RateLimit-Policy header was exceeded.",
    remedy: "Wait for the number of seconds in Retry-After, and spread requests over the window.",
  },
  integration_rate_limited: platformsOwn(429, "an integration is asked too often", NO_INTEGRATIONS),
  internal_error: {
    status: 500,
    meaning: "An internal error occurred.",
    remedy: "Retry with the same Idempotency-Key; if it fails again, report the request_id.",
  },
  integration_provider_error: platformsOwn(502, "an integration's provider fails", NO_INTEGRATIONS),
  temporarily_unavailable: {
    status: 503,
    meaning: "A dependency of the service, such as its database, is temporarily unavailable.",
    remedy: "Wait for the number of seconds in Retry-After, then retry with the same Idempotency-Key.",
  },
  integration_temporarily_unavailable: platformsOwn(503, "an integration is unavailable", NO_INTEGRATIONS),
  integration_timeout: platformsOwn(504, "an integration's provider takes too long", NO_INTEGRATIONS),
} as const satisfies ProblemCatalogue;

/** What the platform declares of every operation. @param when it returns it @param why nobody has to do anything */
function platformsOwn<const Status extends ProblemKind["status"]>(status: Status, when: string, why: string) {
  return {
    status,
    meaning: `The platform returns this when ${when}; this service never does.`,
    remedy: `Nothing to do: ${why}.`,
    isRaised: false,
  } as const;
}

/** The codes that the kernel raises for an operation, and those that its handler declares, some of them the same. */
export function raisedCodes({
  effect,
  work,
  errors,
  isAcrossAccounts,
  response,
}: Operation): readonly string[] {
  const codes = [
    "invalid_request",
    "invalid_request_id",
    ...(isAcrossAccounts ? [] : ["account_required"]),
    "unauthorized",
    "access_denied",
    "not_found",
    "method_not_allowed",
    ...(effect === "write" ? RAISED_FOR_WRITES : []),
    ...(work.kind === "retired" ? ["route_retired"] : []),
    ...(response.kind === "content" ? ["range_not_satisfiable"] : []),
    "rate_limited",
    "internal_error",
    "temporarily_unavailable",
    ...errors,
  ];
  return [...new Set(codes)];
}

const RAISED_FOR_WRITES: readonly string[] = [
  "idempotency_key_required",
  "idempotency_in_progress",
  "account_moved",
  "storage_full",
  "payload_too_large",
  "unsupported_media_type",
  "idempotency_key_reused",
];
