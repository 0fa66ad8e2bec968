import type { Readable } from "node:stream";
import type { z } from "zod";
import type { ByteRange } from "./bytes.ts";
import { JSON_BODY_BYTES_MAX } from "./limits.ts";

/** A JSON body, validated against `schema` before the handler sees it. */
export type JsonBody<Schema extends z.ZodType = z.ZodType> = {
  readonly kind: "json";
  readonly schema: Schema;
  readonly bytesMax: number;
  /** Whether the body may be left out; the schema then sees `{}`. */
  readonly isOptional: boolean;
};

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

export function jsonBody<Schema extends z.ZodType>(
  schema: Schema,
  options: { bytesMax?: number; isOptional?: boolean } = {},
): JsonBody<Schema> {
  const { bytesMax = JSON_BODY_BYTES_MAX, isOptional = false } = options;
  return { kind: "json", schema, bytesMax, isOptional };
}

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
export type BodyOf<Body> =
  Body extends JsonBody<infer Schema>
    ? z.output<Schema>
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

/** What a handler returns. `etag`: an opaque tag of the bytes if the store has one; else it is computed. */
export type ResultOf<OperationResponse> =
  OperationResponse extends JsonResponse<infer Schema, infer Header, infer Other>
    ?
        | { readonly body: z.output<Schema>; readonly headers?: HeadersOf<Header> }
        | ([z.output<Other>] extends [never] ? never : { readonly other: z.output<Other> })
    : OperationResponse extends BytesResponse
      ? { readonly bytes: Uint8Array; readonly etag?: string }
      : OperationResponse extends ContentResponse
        ? { readonly content: Content }
        : // biome-ignore lint/suspicious/noConfusingVoidType: what an async handler without a return gives.
          void;
