// A collector of traces: takes OTLP over HTTP, and decodes it by OpenTelemetry's schema.
import { EventEmitter, once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import protobuf from "protobufjs";
import { patientSignal } from "./time-limits.ts";

const SCHEMA = protobuf
  .parse(
    `syntax = "proto3";
  message Request { repeated ResourceSpans resource_spans = 1; }
  message ResourceSpans { Attributes resource = 1; repeated ScopeSpans scope_spans = 2; }
  message ScopeSpans { repeated Span spans = 2; }
  message Span {
    bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; int32 kind = 6;
    fixed64 start_time_unix_nano = 7; fixed64 end_time_unix_nano = 8; repeated KeyValue attributes = 9;
    repeated Event events = 11; Status status = 15;
  }
  message Event { fixed64 time_unix_nano = 1; string name = 2; }
  message Status { int32 code = 3; }
  message Attributes { repeated KeyValue attributes = 1; }
  message KeyValue { string key = 1; Value value = 2; }
  message Value { oneof value { string string = 1; bool bool = 2; int64 int = 3; double double = 4; } }`,
  )
  .root.lookupType("Request");

type KeyValue = { readonly key: string; readonly value: Readonly<Record<string, unknown>> };

export type CollectedSpan = {
  readonly name: string;
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: it has none. */
  readonly parentId: string;
  readonly kind: number;
  /** Nanoseconds since the epoch. */
  readonly startedAt: bigint;
  readonly endedAt: bigint;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly events: readonly { readonly name: string; readonly at: bigint }[];
  readonly hasFailed: boolean;
  /** Of the process that sent it. */
  readonly resource: Readonly<Record<string, unknown>>;
};

/** `answer`: the status of each request; null: it is never answered. */
export async function startCollector(answer: () => number | null = () => 200) {
  const spans: CollectedSpan[] = [];
  const headers: IncomingHttpHeaders[] = [];
  const events = new EventEmitter();
  const server = createServer(async (request, response) => {
    headers.push({ path: request.url, ...request.headers });
    const status = answer();
    if (status === 200) spans.push(...decode(await buffer(request)));
    events.emit("request");
    if (status !== null) response.writeHead(status).end();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    headers,
    /** Resolves once it has what is wanted. */
    until: async (isThere: (spans: readonly CollectedSpan[]) => boolean): Promise<void> => {
      const signal = patientSignal(20_000);
      while (!isThere(spans)) await once(events, "request", { signal });
    },
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** As the schema has them. */
type Decoded = {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] };
    readonly scopeSpans: readonly {
      readonly spans: readonly (Pick<CollectedSpan, "name" | "kind"> &
        Readonly<Record<"traceId" | "spanId" | "parentSpanId", Uint8Array>> &
        Readonly<Record<"startTimeUnixNano" | "endTimeUnixNano", bigint>> & {
          readonly attributes: readonly KeyValue[];
          readonly events: readonly { readonly name: string; readonly timeUnixNano: bigint }[];
          readonly status: { readonly code: number } | null;
        })[];
    }[];
  }[];
};

function decode(bytes: Buffer): CollectedSpan[] {
  const message = SCHEMA.decode(bytes);
  const options = { longs: BigInt, arrays: true, defaults: true };
  const { resourceSpans } = SCHEMA.toObject(message, options) as Decoded;
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        name: span.name,
        kind: span.kind,
        traceId: hex(span.traceId),
        spanId: hex(span.spanId),
        parentId: hex(span.parentSpanId),
        startedAt: span.startTimeUnixNano,
        endedAt: span.endTimeUnixNano,
        attributes: valuesOf(span.attributes),
        events: span.events.map(({ name, timeUnixNano: at }) => ({ name, at })),
        hasFailed: span.status?.code === 2,
        resource: valuesOf(resource.attributes),
      })),
    ),
  );
}

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");

function valuesOf(attributes: readonly KeyValue[]): Record<string, unknown> {
  return Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));
}
