import { expect, test } from "vitest";
import { standardProblems } from "../../src/http/problem-catalogue.ts";
import { explainProblem, PROBLEM_STATUSES, type ProblemKind } from "../../src/http/problems.ts";

/** What the platform's own document declares of every operation. */
const PLATFORM = {
  unsafe_lifecycle_details: [400, "Unsafe lifecycle details"],
  unauthorized: [401, "Unauthorized"],
  billing_credits_exhausted: [402, "Billing credits exhausted"],
  access_denied: [403, "Access denied"],
  integration_not_found: [404, "Integration not found"],
  method_not_allowed: [405, "Method not allowed"],
  integration_disconnect_required: [409, "Integration disconnect required"],
  route_retired: [410, "Route retired"],
  zip_too_large: [413, "Zip too large"],
  unsupported_media_type: [415, "Unsupported media type"],
  idempotency_key_reused: [422, "Idempotency key reused"],
  integration_rate_limited: [429, "Integration rate limited"],
  internal_error: [500, "Internal error"],
  integration_provider_error: [502, "Integration provider error"],
  integration_temporarily_unavailable: [503, "Integration temporarily unavailable"],
  integration_timeout: [504, "Integration timeout"],
} as const;

test("each status has the platform's code and title, and codes that are never raised say so", () => {
  expect(Object.values(PLATFORM).map(([status]) => status)).toEqual(PROBLEM_STATUSES);
  for (const [code, [status, title]] of Object.entries(PLATFORM)) {
    const kind: ProblemKind = standardProblems[code as keyof typeof PLATFORM];
    expect(explainProblem(code, kind)).toMatchObject({ status, title });
    const isRaised = !/^(?:integration|unsafe|zip)_/.test(code);
    expect(kind.isRaised ?? true, code).toBe(isRaised);
    expect(kind.meaning.endsWith("this service never does."), code).toBe(!isRaised);
  }
});
