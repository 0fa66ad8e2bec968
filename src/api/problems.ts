/** The sixteen error statuses, declared on every operation. */
export const PROBLEM_STATUSES = [
  400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504,
] as const;

export type ProblemStatus = (typeof PROBLEM_STATUSES)[number];

/** One kind of refusal, as its page `/errors/{code}` explains it. */
export type ProblemKind = {
  readonly status: ProblemStatus;
  readonly title: string;
  /** When a caller meets it, in a sentence. */
  readonly meaning: string;
  /** What the caller can do about it, in a sentence or two. */
  readonly remedy: string;
  /** Whether answers carry `errors`, one entry for each mistake. */
  readonly hasErrors?: true;
  /** False for a code of the platform that this service declares and never raises. */
  readonly isRaised?: false;
};

/** Every code that an answer can carry. The kernel's own are in problem-catalogue.ts; operations add theirs. */
export type ProblemCatalogue = Readonly<Record<string, ProblemKind>>;

/** One mistake of a request: where (`query.limit`, `body.url`, `header.x-account-id`) and what. */
export type FieldError = { readonly path: string; readonly message: string };

type ProblemDetails = {
  readonly errors?: readonly FieldError[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
};

/** Thrown to end a request with the answer that `code` names in the catalogue. */
export class Problem extends Error {
  readonly code: string;
  readonly errors: readonly FieldError[];
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: string, { errors = [], headers = {}, cause }: ProblemDetails = {}) {
    super(code, { cause });
    this.name = "Problem";
    this.code = code;
    this.errors = errors;
    this.headers = headers;
  }
}

/** 400 `invalid_request` with one mistake. */
export function invalidRequest(path: string, message: string): Problem {
  return new Problem("invalid_request", { errors: [{ path, message }] });
}

/**
 * What a handed-in function throws when the thing behind it (the database) does not answer.
 * The caller gets 503 `temporarily_unavailable` with Retry-After.
 */
export class TemporarilyUnavailable extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = "TemporarilyUnavailable";
  }
}
