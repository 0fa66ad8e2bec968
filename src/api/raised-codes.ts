import type { Operation } from "./declarations.ts";

/** The codes that the kernel raises for an operation, and those that its handler declares. */
export function raisedCodes<Tx>({ effect, work, errors }: Operation<Tx>): readonly string[] {
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
