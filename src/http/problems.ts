/** The sixteen error statuses, declared on every operation. */
export const PROBLEM_STATUSES = [
  400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504,
] as const;

/** Besides them, of operations that answer with contents: a Range beyond the end. */
export const RANGE_STATUS = 416;

/** One kind of problem, as explained on its page `/errors/{code}`. */
export type ProblemKind = {
  readonly status: (typeof PROBLEM_STATUSES)[number] | typeof RANGE_STATUS;
  /** Absent: the code in words. */
  readonly title?: string;
  /** When it occurs, in a sentence. */
  readonly meaning: string;
  /** What the caller can do, in a sentence or two. */
  readonly remedy: string;
  /** Whether responses carry `errors`, one entry per invalid field. */
  readonly hasErrors?: true;
  /** False for a platform code that this service declares but never returns. */
  readonly isRaised?: false;
};

/** Every code that a response can carry. The standard ones are in problem-catalogue.ts; operations add theirs. */
export type ProblemCatalogue = Readonly<Record<string, ProblemKind>>;

/** What is told of a problem wherever it is explained. */
export type ExplainedProblem = ReturnType<typeof explainProblem>;

/** @param kind of the catalogue */
export function explainProblem(code: string, kind: ProblemKind) {
  const { status, title = `${code.charAt(0).toUpperCase()}${code.slice(1).replaceAll("_", " ")}` } = kind;
  return { code, status, title, meaning: kind.meaning, remedy: kind.remedy };
}

/** An invalid field of a request: where (`query.limit`, `body.url`, `header.x-account-id`) and what is wrong. */
export type FieldError = { readonly path: string; readonly message: string };

type ProblemDetails = {
  readonly errors?: readonly FieldError[];
  readonly headers?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
};

/** Thrown to end a request with the problem that `code` names in the catalogue. */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly code: string;
  readonly errors: readonly FieldError[];
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: string, { errors = [], headers = {}, cause }: ProblemDetails = {}) {
    super(code, { cause });
    this.code = code;
    this.errors = errors;
    this.headers = headers;
  }
}

/** 400 `invalid_request` for one field. */
export function invalidRequest(path: string, message: string): Problem {
  return new Problem("invalid_request", { errors: [{ path, message }] });
}

/** 409 `account_moved`. @param cell its name */
export function accountMoved(cell: string): Problem {
  return new Problem("account_moved", {
    errors: [{ path: "account", message: `The account is in the cell "${cell}".` }],
  });
}

/** What is behind an injected function (the database) is away: 503 `temporarily_unavailable` with Retry-After. */
export class TemporarilyUnavailable extends Error {
  override readonly name = "TemporarilyUnavailable";
}

/** What an injected function's error means to the caller: a Problem, or TemporarilyUnavailable; else it is returned. */
export type TranslateError = (error: unknown) => unknown;
