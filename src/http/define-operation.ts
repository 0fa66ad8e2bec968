import type { z } from "zod";
import type {
  Audit,
  Batched,
  CallOutWork,
  Deprecation,
  ExecutionMode,
  HandlerCode,
  JudgeRepeat,
  Method,
  Named,
  Operation,
  OperationRequest,
  ReadWork,
  Risk,
  UploadWork,
  Work,
  WriteWork,
} from "./operation.ts";
import {
  type BodyOf,
  emptyResponse,
  type JsonBody,
  type RawBody,
  type ResponseSchema,
  type ResultOf,
  type StorableResponse,
  type StreamBody,
} from "./operation-io.ts";

type MaybeObject = z.ZodObject | undefined;
type MaybeBody = JsonBody | RawBody | undefined;

/** What every declaration has. */
type Declared = Named & {
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

/** Risk none, sync, idempotent, GET (and HEAD). */
type Reading<Params, Query, Response, Code extends string> = Checked<Params, Query, Response, Code> & {
  readonly method: "GET";
};

type Writing<Params, Query, Body, Response, Code extends string> = Checked<Params, Query, Response, Code> & {
  readonly method: Exclude<Method, "GET">;
  readonly risk: Exclude<Risk, "none">;
  readonly mode: ExecutionMode;
  /** The rule for every write: no Idempotency-Key, no effect. Written out so that nobody forgets it. */
  readonly idempotency: "key_required";
  /** Written out for the same reason. */
  readonly audit: Audit<RequestOf<Params, Query, Body, Code>, ResultOf<Response>>;
  readonly body?: Body;
};

type Repeatable<Request> = {
  /** Required of each whose answer tells of something in a space, or of what a run published. */
  readonly judgeRepeat?: JudgeRepeat<Request>;
};

/** The ways to declare an operation. `DomainCode`: the codes that the operations add to the standard ones. */
export function operationDefiners<DomainCode extends string = never>() {
  type Codes = DomainCode | HandlerCode;
  return {
    read<
      Response extends ResponseSchema,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      const Code extends Codes = never,
    >(
      declaration: Reading<Params, Query, Response, Code> &
        ReadWork<RequestOf<Params, Query, undefined, Code>, ResultOf<Response>>,
    ): Operation {
      return operation("read", declaration);
    },
    /** A read across accounts, which only staff have. */
    staffRead<
      Response extends ResponseSchema,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
    >(
      declaration: Reading<Params, Query, Response, never> & {
        readonly handle: (
          request: Omit<RequestOf<Params, Query, undefined, never>, "accountId" | "reader">,
        ) => Promise<ResultOf<Response>>;
      },
    ): Operation {
      return operation("read", { ...declaration, isAcrossAccounts: true });
    },
    write<
      Response extends StorableResponse,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      Body extends MaybeBody = undefined,
      const Code extends Codes = never,
      Prepared = undefined,
    >(
      declaration: Writing<Params, Query, Body, Response, Code> &
        Repeatable<RequestOf<Params, Query, Body, Code>> &
        WriteWork<RequestOf<Params, Query, Body, Code>, ResultOf<Response>, Prepared>,
    ): Operation {
      return operation("write", declaration);
    },
    /** A write whose requests share transactions with others of their kind, each with its own claim and response. */
    batchedWrite<
      Response extends StorableResponse,
      Item,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      Body extends MaybeBody = undefined,
      const Code extends Codes = never,
    >(
      declaration: Writing<Params, Query, Body, Response, Code> &
        Batched<RequestOf<Params, Query, Body, Code>, Item, ResultOf<Response>>,
    ): Operation {
      return operation("batched_write", declaration);
    },
    callOut<
      Response extends StorableResponse,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      Body extends MaybeBody = undefined,
      const Code extends Codes = never,
    >(
      declaration: Writing<Params, Query, Body, Response, Code> &
        Repeatable<RequestOf<Params, Query, Body, Code>> &
        CallOutWork<RequestOf<Params, Query, Body, Code>, ResultOf<Response>>,
    ): Operation {
      return operation("call_out", declaration);
    },
    upload<
      Response extends StorableResponse,
      Received,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      const Code extends Codes = never,
    >(
      declaration: Writing<Params, Query, StreamBody, Response, Code> &
        Repeatable<RequestOf<Params, Query, StreamBody, Code>> &
        UploadWork<RequestOf<Params, Query, StreamBody, Code>, ResultOf<Response>, Received> & {
          readonly body: StreamBody;
        },
    ): Operation {
      return operation("upload", declaration);
    },
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
  risk: "none",
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

/** The types of a declaration say what its functions take, which is what was read by its schemas. */
function operation(
  kind: Work["kind"],
  declared: Named & Pick<Operation, "method" | "response"> & { readonly isAcrossAccounts?: true },
): Operation {
  const isRead = kind === "read" || (kind === "retired" && declared.method === "GET");
  return Object.freeze({
    ...DEFAULTS,
    ...declared,
    effect: isRead ? "read" : "write",
    // The platform's rule: the flag speaks of the operation without a key, so reads have it and writes do not.
    isIdempotent: isRead,
    work: { ...declared, kind } as unknown as Work,
  });
}
