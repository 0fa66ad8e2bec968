import type { Readable } from "node:stream";
import type { ClientBase } from "pg";
import type { z } from "zod";
import type { CallerSession } from "../base/model/audit.ts";
import type { ClaimState, IdempotencyClaim, StoredResponse } from "../base/model/idempotency.ts";
import type { Reader } from "../base/model/reader.ts";
import type { ByteRange } from "./bytes.ts";
import { JSON_BODY_BYTES_MAX } from "./limits.ts";
import type { FieldError, Problem } from "./problems.ts";

/** What a request says of a body that is still to come. */
export type AnnouncedBody = {
  /** As it was sent, tidied; `application/octet-stream` if none was. */
  readonly mediaType: string;
  readonly bytes: number;
  /** Of the whole body, 32 bytes. */
  readonly sha256: Buffer;
};

/** What a handler receives of it. */
export type ReceivedBody = AnnouncedBody & {
  /**
   * Takes the bytes, once. A client that waits for 100 Continue sends none before, so what can be refused without them
   * is refused first. The stream ends only when every byte has come and the digest is right; otherwise it fails, before
   * the last of its bytes.
   */
  open(): Readable;
};

/**
 * A JSON body, validated against `schema` before the handler sees it.
 * @param options.isOptional whether it may be left out; the schema then sees `{}`
 */
export function jsonBody<Schema extends z.ZodType>(
  schema: Schema,
  options: { readonly bytesMax?: number; readonly isOptional?: boolean } = {},
) {
  return { kind: "json", schema, bytesMax: JSON_BODY_BYTES_MAX, isOptional: false, ...options } as const;
}
export type JsonBody = ReturnType<typeof jsonBody>;

/**
 * A body passed on as raw bytes; the handler validates it.
 * @param options.documentedAs for the reference only; nothing is validated against it
 */
export function rawBody(options: { readonly documentedAs: z.ZodType; readonly bytesMax: number }) {
  return { kind: "raw", ...options } as const;
}
export type RawBody = ReturnType<typeof rawBody>;

/** A body of any media type, passed on as it comes: neither parsed nor held in memory. */
export function streamBody(options: { readonly bytesMax: number }) {
  return { kind: "stream", ...options } as const;
}
export type StreamBody = ReturnType<typeof streamBody>;

/** What a handler receives as `body`. */
export type BodyOf<Body> = Body extends JsonBody
  ? z.output<Body["schema"]>
  : Body extends RawBody
    ? Buffer
    : Body extends StreamBody
      ? ReceivedBody
      : undefined;

/** A success with a JSON body. `headers`: those that this operation adds, each with its description. */
type JsonResponse<
  Schema extends z.ZodType = z.ZodType,
  Header extends string = string,
  Other extends z.ZodType = z.ZodType,
> = {
  readonly kind: "json";
  readonly status: 200 | 201 | 202;
  readonly schema: Schema;
  readonly headers: Readonly<Record<Header, string>>;
  /** An alternative success; null: there is none. */
  readonly other: OtherSuccess<Other> | null;
};

/** A second success under a status of its own, such as the outcome of a dry run. */
type OtherSuccess<Schema extends z.ZodType = z.ZodType> = {
  readonly status: 200 | 201 | 202;
  readonly schema: Schema;
  /** When it is given, as a sentence. */
  readonly description: string;
};

/** What a handler returns for a `contentResponse`. */
export type Content = {
  readonly bytes: number;
  readonly mediaType: string;
  /** An opaque tag, another one whenever the bytes are others. */
  readonly etag: string;
  /** Under which it is saved; any text. */
  readonly fileName: string;
  /** These bytes and no others; one that fails, or is short, breaks the answer. Not called where none are wanted. */
  open(range: ByteRange): Promise<Readable>;
};

export function jsonResponse<Schema extends z.ZodType, const Header extends string = never>(
  status: 200 | 201 | 202,
  schema: Schema,
  headers = {} as Readonly<Record<Header, string>>,
): JsonResponse<Schema, Header, z.ZodNever> {
  return { kind: "json", status, schema, headers, other: null };
}

/** `response`, or another success in its place. */
export function eitherResponse<Schema extends z.ZodType, Header extends string, Other extends z.ZodType>(
  response: JsonResponse<Schema, Header, z.ZodNever>,
  other: OtherSuccess<Other>,
): JsonResponse<Schema, Header, Other> {
  return { ...response, other };
}

/** A success whose body is existing bytes, sent as they are. */
export function bytesResponse(options: { readonly mediaType: string; readonly documentedAs: z.ZodType }) {
  return { kind: "bytes", status: 200, headers: {}, ...options } as const;
}

/** A success without a body. */
export function emptyResponse() {
  return { kind: "empty", status: 204, headers: {} } as const;
}

/** A success whose body is a file, sent as it is read: the whole, a range of it, or 304. For reads. */
export function contentResponse() {
  return { kind: "content", status: 200, headers: {} } as const;
}

type BytesResponse = ReturnType<typeof bytesResponse>;
type ContentResponse = ReturnType<typeof contentResponse>;
/** What a write answers with, and what is stored of it. */
export type StorableResponse = JsonResponse | BytesResponse | ReturnType<typeof emptyResponse>;
export type ResponseSchema = StorableResponse | ContentResponse;

type HeadersOf<Header extends string> = [Header] extends [never]
  ? Readonly<Record<string, never>>
  : Readonly<Partial<Record<Header, string>>>;

/** What a handler returns. */
export type ResultOf<OperationResponse> =
  OperationResponse extends JsonResponse<infer Schema, infer Header, infer Other>
    ?
        | {
            readonly body: z.output<Schema>;
            readonly headers?: HeadersOf<Header>;
            /** For the operation's `audit` alone: it is in no response. */
            readonly audited?: AuditDetails;
          }
        | ([z.output<Other>] extends [never] ? never : { readonly other: z.output<Other> })
    : OperationResponse extends BytesResponse
      ? { readonly bytes: Uint8Array }
      : OperationResponse extends ContentResponse
        ? { readonly content: Content }
        : // biome-ignore lint/suspicious/noConfusingVoidType: what an async handler without a return gives.
          void;

/** A connection with an open transaction: what writes run in. */
export type Transaction = ClientBase;

export type Risk = "none" | "reversible" | "irreversible";
export type Effect = "read" | "write";
export type ExecutionMode = "sync" | "async";
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

/** A day or an instant, ISO 8601. */
export type IsoDate = `${number}-${number}-${number}` | `${number}-${number}-${number}T${string}Z`;

/** Announced as deprecated at `at`; taken out of service at `sunsetAt`, null while that is undecided. */
export type Deprecation = { readonly at: IsoDate; readonly sunsetAt: IsoDate | null };

/** Who asks: the key, or the one that opened the session, and what it may do. */
export type Caller = {
  readonly keyId: string;
  /** A staff key has access to every account. */
  readonly isStaff: boolean;
  /** The user that the key acts for, who is of the account; null: none. A session acts for its key's. */
  readonly userId: string | null;
  readonly scopes: ReadonlySet<string>;
  /** Absent: the key itself asks. */
  readonly session?: CallerSession;
};

/** A valid request, as a handler receives it. */
export type OperationRequest<Params, Query, Body, Code extends string> = {
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  /** The account that the request is for: the key's own, or the one named with a staff key. */
  readonly accountId: string;
  readonly caller: Caller;
  /** Whose places it takes, see `sharerOf`. */
  readonly sharer: string;
  /** For whom the caller acts; only of an operation that `needsUser`: others are thrown an Error. */
  readonly user: { readonly accountId: string; readonly userId: string };
  /**
   * With whose eyes the caller reads what was published, as it is at this moment: to be asked for at each look. A write
   * gives its transaction.
   */
  reader(tx?: Transaction): Promise<Reader>;
  readonly requestId: string;
  /** The caller's trace (W3C Trace Context), to be propagated; null: none. */
  readonly traceparent: string | null;
  /** `throw request.problem("not_found")`: one of the declared errors, or an invalid request. */
  problem(code: Code | "invalid_request", errors?: readonly FieldError[]): Problem;
};

export type ErasedRequest = OperationRequest<unknown, unknown, unknown, string>;
export type ErasedResult = Exclude<ResultOf<ResponseSchema>, void> | undefined;

/** What an audit row tells of a write besides its operation, actor and time. Never a secret. */
export type AuditDetails = Readonly<Record<string, unknown>>;

/**
 * What a write leaves in the audit log, in the transaction of its effect: what `details` says of the request and its
 * result, nothing where they are null (a dry run); or, with the reason, where it is told instead.
 */
export type Audit<Request, Result> =
  | ((request: Request, result: Result) => AuditDetails | null)
  | { readonly elsewhere: string };

/** The work of a write that many ask for at once. */
export type Batched<Request, Item, Result> = {
  /**
   * Reads what one request asks for. Two with one `name`, if any, of one account are never in one transaction.
   * @throws Problem that refuses it
   */
  prepare(request: Request): { readonly item: Item; readonly name: string | null };
  /**
   * Claims, effects and stored answers in one transaction, each judged by itself, in their order. A throw undoes all of
   * it: `LockWaitError` where a lock was not to be had within `lockWaitMs`.
   */
  handleEach(
    writes: readonly ClaimedItem<Item, Result>[],
    lockWaitMs: number,
  ): Promise<readonly (Result | Problem | Earlier)[]>;
};

/** One write of a batch. */
export type ClaimedItem<Item, Result> = {
  readonly claim: IdempotencyClaim;
  /** For whom the caller acts; null: the account. */
  readonly userId: string | null;
  /** What it asks for, or why that is refused. A repeat of what was answered gets that answer all the same. */
  readonly item: Item | Problem;
  /** What is stored of the answer to this result. */
  readonly respond: (result: Result) => StoredResponse;
};

/** It was answered before, or another request holds its claim. */
export type Earlier = { readonly earlier: ClaimState };

/** When a read holds its answer. */
export type Wait<Request, Result> = {
  /** How long this request is willing to wait, in milliseconds; 0: not at all. */
  waitMs(request: Request): number;
  /** Nothing to read: worth waiting for. */
  isEmpty(result: Result): boolean;
};
/**
 * What becomes of a repeat by whoever acts for a user, who may have lost since what the answer tells of: it is told
 * `again`; it is `gone`, and answered as what does not exist; or what changed nothing is done `anew`.
 */
export type Repeated = "again" | "gone" | "anew";
/** @param told the stored answer's JSON; null: it has no body */
export type JudgeRepeat<Request> = (request: Request, tx: Transaction, told: unknown) => Promise<Repeated>;

export type ReadWork<Request, Result> = {
  /** Where the answer may be held until the account is told of something new. */
  readonly waits?: Wait<Request, Result>;
  readonly handle: (request: Request) => Promise<Result>;
};

/** The work of a write: its effect and its stored response are one transaction, `tx`. */
export type WriteWork<Request, Result, Prepared> = {
  readonly handle: (request: Request, tx: Transaction, prepared: Prepared) => Promise<Result>;
  /**
   * What takes long and needs no transaction, done before there is one. It changes nothing and refuses nobody: that is
   * for `handle`, because a request that is repeated is prepared, too, and gets its stored response. What has not begun
   * when `gone` is aborted is begun for nobody.
   */
  readonly prepare?: (request: Request, gone: AbortSignal) => Promise<Prepared>;
};

/** The work of a write that calls another system: claim, call, respond, with no transaction open while it waits. */
export type CallOutWork<Request, Result> = {
  readonly callsOut: { readonly deadlineMs: number };
  readonly handle: (request: Request) => Promise<Result>;
};

/**
 * The work of a write whose body is streamed. Its claim is held while the bytes come, with no transaction open; what
 * they come to and the stored response are one transaction.
 */
export type UploadWork<Request, Result, Received> = {
  /** Takes the bytes to where they are kept. If it fails or its process dies, the same request may come again. */
  readonly receive: (request: Request) => Promise<Received>;
  /** Now and then while the bytes come: a Problem that it throws ends them, and is the answer. */
  readonly recheck: (request: Request, tx: Transaction) => Promise<void>;
  readonly handle: (request: Request, tx: Transaction, received: Received) => Promise<Result>;
  /** `handle` has thrown a Problem, and its transaction is undone: lets go what was received. */
  readonly refused: (request: Request, received: Received) => Promise<void>;
};

/** How an operation does its work. */
export type Work =
  | ({ readonly kind: "read" } & ReadWork<ErasedRequest, ErasedResult>)
  | ({ readonly kind: "write" } & WriteWork<ErasedRequest, ErasedResult, unknown>)
  | ({ readonly kind: "batched_write" } & Batched<ErasedRequest, unknown, ErasedResult>)
  | ({ readonly kind: "call_out" } & CallOutWork<ErasedRequest, ErasedResult>)
  | ({ readonly kind: "upload" } & UploadWork<ErasedRequest, ErasedResult, unknown>)
  | { readonly kind: "retired" };

export type Named = {
  /** Dotted name, `webhooks.deliveries.get`: metric label and operationId. */
  readonly key: `${string}.${string}`;
  /** Its heading in the reference. */
  readonly tag: string;
  /** A few words, without a full stop. */
  readonly summary: string;
  /** Sentences. */
  readonly description: string;
  /** With `{name}` for each path parameter. */
  readonly path: `/v1/${string}`;
  readonly scope: `${string}:${string}`;
};

/** One operation of the API; routes, documents and checks follow from it. */
export type Operation = Named & {
  readonly method: Method;
  /** Across accounts: for staff keys alone, which name none. */
  readonly isAcrossAccounts: boolean;
  /** For keys that act for a user. */
  readonly needsUser: boolean;
  /** Not for those: it tells of the whole account. */
  readonly isOfAccount: boolean;
  readonly risk: Risk;
  readonly effect: Effect;
  readonly mode: ExecutionMode;
  readonly isIdempotent: boolean;
  readonly params: z.ZodObject | null;
  readonly query: z.ZodObject | null;
  readonly body: JsonBody | RawBody | StreamBody | null;
  readonly response: ResponseSchema;
  /** Codes that the handler raises, besides those that the kernel raises for every operation. */
  readonly errors: readonly string[];
  /** Whether responses hold a secret: never cached, and encrypted at rest. */
  readonly holdsSecret: boolean;
  readonly deprecated: Deprecation | null;
  /** Null for reads and what is retired: they change nothing. */
  readonly audit: Audit<ErasedRequest, ErasedResult> | null;
  /** Null: a repeat is told again, for membership of a space decides nothing of it. */
  readonly judgeRepeat: JudgeRepeat<ErasedRequest> | null;
  readonly work: Work;
};

/** Codes of the kernel's that handlers may raise, too, where they declare it. */
export type HandlerCode = "not_found" | "access_denied";
