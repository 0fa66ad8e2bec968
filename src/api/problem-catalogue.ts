import type { Operation } from "./operation.ts";

import type { ProblemCatalogue } from "./problems.ts";

/** The codes that the kernel raises itself, and the platform's three that this service only declares. */
export const standardProblems = {
  invalid_request: {
    status: 400,
    title: "Invalid request",
    meaning:
      "A part of the request is not what the operation takes; `errors` names each mistake and its place.",
    remedy:
      "Correct the fields that `errors` names, then send the request again. A repeat as it is fails again.",
    hasErrors: true,
  },
  invalid_request_id: {
    status: 400,
    title: "Invalid request id",
    meaning: "X-Request-Id is longer than 128 characters or holds others than printable ASCII.",
    remedy:
      "Send at most 128 printable ASCII characters, or leave the header out: the answer then carries a fresh id.",
  },
  idempotency_key_required: {
    status: 400,
    title: "Idempotency key required",
    meaning: "The operation writes, and the request has no Idempotency-Key.",
    remedy:
      "Send an Idempotency-Key of 1 to 200 characters, new for each thing to be done (a UUID, say), " +
      "and the same one when you repeat a request whose answer you have not seen.",
  },
  account_required: {
    status: 400,
    title: "Account required",
    meaning: "A staff key reaches every account, and the request does not name one.",
    remedy: "Name the account in the X-Account-Id header.",
  },
  unauthorized: {
    status: 401,
    title: "Unauthorized",
    meaning: "The request has no API key, or one that is not valid here.",
    remedy:
      "Send `Authorization: Bearer <API key>`. Check that the key is whole, neither revoked nor expired, and of this " +
      "environment: keys of production and of development are not interchangeable.",
  },
  billing_credits_exhausted: {
    status: 402,
    title: "Billing credits exhausted",
    meaning: "The platform answers this when an account has no credits left; this service does not.",
    remedy: "Nothing is to be done here: no operation of this service costs credits.",
    isRaised: false,
  },
  access_denied: {
    status: 403,
    title: "Access denied",
    meaning: "The API key lacks the scope that the operation requires, or the request names another account.",
    remedy:
      "Use a key with the operation's scope (`GET /v1/operations` lists them), and leave X-Account-Id out unless " +
      "the key is a staff key.",
  },
  not_found: {
    status: 404,
    title: "Not found",
    meaning: "There is nothing at this address, or nothing that belongs to the account.",
    remedy:
      "Check the address and the id; with a staff key, also the account in X-Account-Id; for what needs an endpoint, " +
      "set one first. What belongs to another account looks as if it did not exist.",
  },
  method_not_allowed: {
    status: 405,
    title: "Method not allowed",
    meaning: "The address exists, but not for this method.",
    remedy: "Use one of the methods that the Allow header of the answer names.",
  },
  idempotency_in_progress: {
    status: 409,
    title: "Idempotency key in progress",
    meaning: "A request under the same Idempotency-Key is still being worked on.",
    remedy:
      "Wait a moment, then repeat the same request under the same key: it answers what the first one did.",
  },
  route_retired: {
    status: 410,
    title: "Route retired",
    meaning: "The operation was announced as deprecated and has been taken out of service.",
    remedy: "See the reference for the operation that took its place.",
  },
  payload_too_large: {
    status: 413,
    title: "Payload too large",
    meaning: "The body of the request has more bytes than the operation takes.",
    remedy: "Send a smaller body; the reference states the bound.",
  },
  unsupported_media_type: {
    status: 415,
    title: "Unsupported media type",
    meaning: "The body of the request is not declared as plain JSON.",
    remedy: "Send `Content-Type: application/json`, UTF-8, without Content-Encoding.",
  },
  idempotency_key_reused: {
    status: 422,
    title: "Idempotency key reused",
    meaning: "The Idempotency-Key was used before, for a request that differs from this one.",
    remedy: "Use a new key for a new request, and an old one only to repeat exactly the same request.",
  },
  rate_limited: {
    status: 429,
    title: "Rate limited",
    meaning:
      "More requests were sent within the window than the RateLimit-Policy header of the refusal allows.",
    remedy: "Wait for the seconds that Retry-After states, and spread requests over the window.",
  },
  internal_error: {
    status: 500,
    title: "Internal error",
    meaning: "The service met a fault of its own.",
    remedy: "Repeat the request under the same Idempotency-Key; if it fails again, report the request_id.",
  },
  integration_provider_error: {
    status: 502,
    title: "Integration provider error",
    meaning: "The platform answers this when an integration's provider fails; this service does not.",
    remedy: "Nothing is to be done here: no operation of this service passes a provider's failure on.",
    isRaised: false,
  },
  temporarily_unavailable: {
    status: 503,
    title: "Temporarily unavailable",
    meaning: "Something that the service needs, such as its database, does not answer at the moment.",
    remedy:
      "Wait for the seconds that Retry-After states, then repeat the request under the same Idempotency-Key.",
  },
  integration_timeout: {
    status: 504,
    title: "Integration timeout",
    meaning:
      "The platform answers this when an integration's provider takes too long; this service does not.",
    remedy: "Nothing is to be done here: no operation of this service waits for a provider.",
    isRaised: false,
  },
} as const satisfies ProblemCatalogue;

/** The codes that the kernel raises for an operation, and those that its handler declares. */
export function raisedCodes({ effect, work, errors }: Operation): readonly string[] {
  return [
    "invalid_request",
    "invalid_request_id",
    "account_required",
    ...(effect === "write" ? ["idempotency_key_required"] : []),
    "unauthorized",
    "access_denied",
    "not_found",
    "method_not_allowed",
    ...(effect === "write" ? ["idempotency_in_progress", "payload_too_large"] : []),
    ...(effect === "write" ? ["unsupported_media_type", "idempotency_key_reused"] : []),
    ...(work.kind === "retired" ? ["route_retired"] : []),
    "rate_limited",
    "internal_error",
    "temporarily_unavailable",
    ...errors.filter((code) => code !== "not_found"),
  ];
}
