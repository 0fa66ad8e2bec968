import type { z } from "zod";
import {
  type Audit,
  type Batched,
  type BodyOf,
  type CallOutWork,
  type Deprecation,
  type ExecutionMode,
  emptyResponse,
  type HandlerCode,
  type JsonBody,
  type JudgeRepeat,
  type Method,
  type Named,
  type Operation,
  type OperationRequest,
  type RawBody,
  type ReadWork,
  type ResponseSchema,
  type ResultOf,
  type Risk,
  type StorableResponse,
  type StreamBody,
  type UploadWork,
  type Work,
  type WriteWork,
} from "./operation.ts";

type MaybeObject = z.ZodObject | undefined;

/** What every declaration has. */
type Declared = Omit<Named, "tag"> & {
  /** Others than keys that act for a user are denied. */
  readonly needsUser?: true;
  /** Those are denied: it tells of the whole account, and knows no spaces. */
  readonly isOfAccount?: true;
  readonly deprecated?: Deprecation;
};

type Parsed<Schema> = Schema extends z.ZodType ? z.output<Schema> : Record<string, never>;
type RequestOf<Params, Query, Body, Code extends string> = OperationRequest<
  Parsed<Params>,
  Parsed<Query>,
  BodyOf<Body>,
  Code
>;

type Checked<Params, Query, Response, Code extends string> = Declared & {
  readonly params?: Params;
  readonly query?: Query;
  readonly response: Response;
  readonly errors?: readonly Code[];
  readonly holdsSecret?: true;
};

type Writing<Params, Query, Body, Response, Code extends string> = Checked<Params, Query, Response, Code> & {
  readonly method: Exclude<Method, "GET">;
  /** Absent: irreversible. */
  readonly risk?: Exclude<Risk, "none">;
  readonly mode?: ExecutionMode;
  /** Written out so that nobody forgets it. */
  readonly audit: Audit<RequestOf<Params, Query, Body, Code>, ResultOf<Response>>;
  readonly body?: Body;
};

/** The work of each kind of write. `Own`: what is prepared, an item of a batch, or what was received. */
type Works<Request, Result, Own> = {
  readonly write: Repeatable<Request> & WriteWork<Request, Result, Own>;
  /** Its requests share transactions with others of their kind, each with its own claim and response. */
  readonly batched_write: Batched<Request, Own, Result>;
  readonly call_out: Repeatable<Request> & CallOutWork<Request, Result>;
  readonly upload: Repeatable<Request> & UploadWork<Request, Result, Own> & { readonly body: StreamBody };
};

type Repeatable<Request> = {
  /** Required of each whose answer tells of something in a space, or of what a run published. */
  readonly judgeRepeat?: JudgeRepeat<Request>;
};

type Define<Kind extends keyof Works<never, never, never>, Bodies, Codes extends string> = <
  Response extends StorableResponse,
  Params extends MaybeObject = undefined,
  Query extends MaybeObject = undefined,
  Body extends Bodies | undefined = undefined,
  const Code extends Codes = never,
  Own = undefined,
>(
  declaration: Writing<Params, Query, Body, Response, Code> &
    Works<RequestOf<Params, Query, Body, Code>, ResultOf<Response>, Own>[Kind],
) => Operation;

/**
 * The ways to declare operations of one heading in the reference. A read has risk none and GET (and HEAD); a write has
 * no effect without an Idempotency-Key. `DomainCode`: the codes that the operations add to the standard ones.
 */
export function operationDefiners<DomainCode extends string = never>(
  tag: string,
  common: Pick<Declared, "needsUser"> = {},
) {
  /** The types of a declaration say what its functions take, which is what was read by its schemas. */
  function operation(
    kind: Work["kind"],
    declared: Declared & Pick<Operation, "method" | "response"> & { readonly isAcrossAccounts?: true },
  ): Operation {
    const isRead = kind === "read" || (kind === "retired" && declared.method === "GET");
    return Object.freeze({
      ...DEFAULTS,
      risk: isRead ? "none" : "irreversible",
      ...common,
      ...declared,
      tag,
      effect: isRead ? "read" : "write",
      // The platform's rule: the flag speaks of the operation without a key, so reads have it and writes do not.
      isIdempotent: isRead,
      work: { ...declared, kind } as unknown as Work,
    });
  }
  type Codes = DomainCode | HandlerCode | "account_moved";
  type Held = JsonBody | RawBody;
  const write: Define<"write", Held, Codes> = (declaration) => operation("write", declaration);
  const batchedWrite: Define<"batched_write", Held, Codes> = (declaration) =>
    operation("batched_write", declaration);
  const callOut: Define<"call_out", Held, Codes> = (declaration) => operation("call_out", declaration);
  const upload: Define<"upload", StreamBody, Codes> = (declaration) => operation("upload", declaration);
  return {
    read<
      Response extends ResponseSchema,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      const Code extends Codes = never,
    >(
      declaration: Checked<Params, Query, Response, Code> &
        ReadWork<RequestOf<Params, Query, undefined, Code>, ResultOf<Response>>,
    ): Operation {
      return operation("read", { ...declaration, method: "GET" });
    },
    /** A read across accounts, which only staff have. */
    staffRead<
      Response extends ResponseSchema,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
    >(
      declaration: Checked<Params, Query, Response, never> & {
        readonly handle: (
          request: Omit<RequestOf<Params, Query, undefined, never>, "accountId" | "user" | "reader">,
        ) => Promise<ResultOf<Response>>;
      },
    ): Operation {
      return operation("read", { ...declaration, method: "GET", isAcrossAccounts: true });
    },
    write,
    batchedWrite,
    callOut,
    upload,
    /** Always 410. */
    retired(
      declaration: Declared &
        Pick<Operation, "method" | "risk" | "mode"> & { readonly deprecated: Deprecation },
    ): Operation {
      return operation("retired", { ...declaration, response: emptyResponse() });
    },
  };
}

/** What a declaration leaves out. */
const DEFAULTS = {
  isAcrossAccounts: false,
  needsUser: false,
  isOfAccount: false,
  mode: "sync",
  params: null,
  query: null,
  body: null,
  errors: [],
  holdsSecret: false,
  deprecated: null,
  audit: null,
  judgeRepeat: null,
} as const satisfies Partial<Operation>;
