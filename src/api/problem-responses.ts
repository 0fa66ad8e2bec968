import { RETRY_AFTER_UNAVAILABLE_SECONDS } from "./limits.ts";
import { Problem, type ProblemCatalogue, type ProblemKind, TemporarilyUnavailable } from "./problems.ts";

/** A problem, ready to be sent. */
export type ProblemResponse = {
  readonly code: string;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
};

export type RenderProblem = (problem: Problem, requestId: string) => ProblemResponse;

/** Renders problems as the platform does: type, title, status, code, request_id, and `errors` where declared. */
export function createProblemRenderer(problems: ProblemCatalogue, docsUrl: string): RenderProblem {
  return (problem, requestId) => {
    const { code, errors } = problem;
    const kind = problems[code];
    if (!kind) throw unknownCode(code, problem);
    const members = {
      type: problemType(docsUrl, code),
      title: kind.title,
      status: kind.status,
      code,
      request_id: requestId,
      ...(kind.hasErrors ? { errors } : {}),
    };
    const headers = {
      "content-type": "application/problem+json",
      "cache-control": "no-store",
      ...standingHeaders(kind),
      ...problem.headers,
    };
    return { code, status: kind.status, headers, body: Buffer.from(JSON.stringify(members)) };
  };
}

/** The problem's page: `{docs_url}/errors/{code}`. */
export function problemType(docsUrl: string, code: string): string {
  return `${docsUrl.replace(/\/+$/, "")}/errors/${code}`;
}

function standingHeaders({ status }: ProblemKind): Readonly<Record<string, string>> {
  if (status === 401) return { "www-authenticate": "Bearer" };
  if (status === 503) return { "retry-after": String(RETRY_AFTER_UNAVAILABLE_SECONDS) };
  return {};
}

const BAD_URL = [
  { path: "url", message: "The address is not decodable: a % needs two hexadecimal digits after it." },
];
const BAD_BODY = [{ path: "body", message: "The body did not arrive as it was announced." }];

/** Maps any error to a problem; `fault`: the error if it is an internal one, else null. */
export function problemFrom(
  error: unknown,
  problems: ProblemCatalogue,
): { readonly problem: Problem; readonly fault: unknown } {
  if (error instanceof Problem) {
    if (Object.hasOwn(problems, error.code)) return { problem: error, fault: null };
    return faultProblem(unknownCode(error.code, error));
  }
  if (error instanceof TemporarilyUnavailable) {
    return { problem: new Problem("temporarily_unavailable", { cause: error }), fault: null };
  }
  const problem = frameworkProblem(error);
  return problem ? { problem, fault: null } : faultProblem(error);
}

/** The caller learns nothing of it; `fault` goes to the log. */
function faultProblem(fault: unknown): { problem: Problem; fault: unknown } {
  return { problem: new Problem("internal_error", { cause: fault }), fault };
}

function unknownCode(code: string, cause: unknown): Error {
  return new Error(`No catalogue has the problem code ${code}.`, { cause });
}

/** Null for an error that fastify did not raise about the request. */
function frameworkProblem(error: unknown): Problem | null {
  if (!(error instanceof Error)) return null;
  switch ("code" in error ? error.code : undefined) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new Problem("payload_too_large");
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new Problem("unsupported_media_type");
    case "FST_ERR_MAX_PARAM_LENGTH":
      return new Problem("not_found");
    case "FST_ERR_BAD_URL":
      return new Problem("invalid_request", { errors: BAD_URL });
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new Problem("invalid_request", { errors: BAD_BODY });
    case "ECONNRESET":
      // Fastify adds a status to errors of the request's stream; without one, a connection of ours broke.
      return "statusCode" in error ? new Problem("invalid_request", { errors: BAD_BODY }) : null;
    default:
      return null;
  }
}
