import { hostname } from "node:os";
import type { Span, SpanOptions } from "@opentelemetry/api";
import type { SpanProcessor } from "@opentelemetry/sdk-trace";
import type { Logger } from "pino";
import type { Config } from "../base/config/config.ts";
import { createDroppedSpans } from "../base/metrics/database-metrics.ts";
import type { MetricsRegistry } from "../base/metrics/registry.ts";
import type { DispatchObserver } from "../delivery/attempt-observers.ts";
import type { LeasedDelivery } from "../delivery/claim-sql.ts";
import type { BeginTrace } from "../delivery/dispatcher.ts";
import type { BeginRequestTrace, CompletedRequest } from "../http/request-context.ts";
import { version } from "./process-context.ts";

/** Spans that wait to be sent, some 1 KiB each; what finds no room is dropped. */
const WAITING_MAX = 4_096;
/** How long they wait at most, and one request to the collector; a shutdown waits for the last ones. */
const SENT_WITHIN_MS = 2_000;
/** The operation whose traces go on with deliveries. */
const PUBLISH = "analyses.publish";

type Traces = {
  /** Absent, as the next: nothing is traced. */
  readonly beginRequest?: BeginRequestTrace;
  readonly beginAttempt?: BeginTrace;
  readonly observer: Partial<DispatchObserver>;
  readonly stop: () => Promise<void>;
};

type TracesOptions = {
  readonly config: Config;
  readonly process: "serve" | "dispatch";
  readonly registry: MetricsRegistry;
  readonly log: Logger;
};

/** Makes spans of deliveries, and sends them to a collector; where none is named, nothing of it is loaded. */
export async function startTraces(options: TracesOptions): Promise<Traces> {
  const { config } = options;
  if (config.otelExporterOtlpEndpoint === null) return { observer: {}, stop: async () => undefined };
  const [api, core, sdk, resources] = await Promise.all([
    import("@opentelemetry/api"),
    import("@opentelemetry/core"),
    import("@opentelemetry/sdk-trace"),
    import("@opentelemetry/resources"),
  ]);
  const { ROOT_CONTEXT, SpanKind, trace } = api;
  const { defaultResource, detectResources, envDetector, resourceFromAttributes } = resources;
  const ours = resourceFromAttributes({
    "service.name": "sealpost",
    "service.version": version,
    "service.instance.id": `${options.process} ${hostname()} ${process.pid}`,
    ...(config.cell !== null && { "sealpost.cell": config.cell }),
  });
  const ids = new sdk.RandomIdGenerator();
  let rootId: string | null = null;
  const root = new sdk.TraceIdRatioBasedSampler(Number(config.otelTracesSamplerArg));
  // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
  const given = detectResources({ detectors: [envDetector] });
  const provider = new sdk.TracerProvider({
    resource: defaultResource().merge(ours).merge(given),
    sampler: new sdk.ParentBasedSampler({ root }),
    idGenerator: {
      generateSpanId: ids.generateSpanId,
      generateTraceId: () => rootId ?? ids.generateTraceId(),
    },
    spanProcessors: [await startSending(options)],
  });
  const tracer = provider.getTracer("sealpost", version);
  const w3c = new core.W3CTraceContextPropagator();

  /** Null: the trace is not sampled, and goes on as it came. `newId`: of a trace that begins here. */
  function begin(name: string, traceparent: string | null, newId: string | null, span: SpanOptions) {
    rootId = newId;
    const parent = w3c.extract(ROOT_CONTEXT, { traceparent }, api.defaultTextMapGetter);
    const begun = tracer.startSpan(name, span, parent);
    if (!begun.isRecording()) return null;
    const carrier: Record<string, string> = {};
    w3c.inject(trace.setSpan(ROOT_CONTEXT, begun), carrier, api.defaultTextMapSetter);
    return { span: begun, traceparent: carrier.traceparent ?? "" };
  }

  function end(span: Span, hasFailed: boolean, endedAtMs?: number): void {
    if (hasFailed) span.setStatus({ code: api.SpanStatusCode.ERROR });
    span.end(endedAtMs);
  }

  type Begun = { span: Span; beganAtMs: number; offsetMs: number };
  const begun = new WeakMap<LeasedDelivery, Begun>();

  return {
    stop: () => provider.shutdown().catch(() => undefined),
    beginRequest: (operationKey, traceparent) => {
      if (operationKey !== PUBLISH) return null;
      const one = begin("publish", traceparent, null, { kind: SpanKind.SERVER });
      if (one === null) return null;
      const endRequest = ({ method, status, problemCode, accountId, requestId }: CompletedRequest) => {
        one.span.setAttributes({
          "http.request.method": method,
          "http.response.status_code": status,
          ...(problemCode !== null && { "error.type": problemCode }),
          ...(accountId !== null && { "sealpost.account_id": accountId }),
          "sealpost.request_id": requestId,
        });
        end(one.span, status >= 500);
      };
      return { traceparent: one.traceparent, end: endRequest };
    },
    beginAttempt: (delivery, askedAtMs, beganAtMs) => {
      // Without a trace from its publication all of its attempts are in the one that its id names.
      const newId = delivery.deliveryId.replaceAll("-", "");
      const wish = { kind: SpanKind.CLIENT, startTime: beganAtMs };
      const one = begin("attempt", delivery.traceparent, newId, wish);
      if (one === null) return delivery;
      const traced = { ...delivery, traceparent: one.traceparent };
      const offsetMs = beganAtMs - performance.now();
      one.span.addEvent("claim", askedAtMs + offsetMs);
      begun.set(traced, { span: one.span, beganAtMs, offsetMs });
      return traced;
    },
    observer: {
      attemptRecorded: (delivery, { recording: { attempt, next } }, recorded) => {
        const one = begun.get(delivery);
        // Null: no POST was made that counts as an attempt.
        if (one === undefined || attempt === null) return;
        const { span, beganAtMs, offsetMs } = one;
        const { targetUrl, statusCode, errorCode, dnsMs, connectMs, tlsMs, firstByteMs } = attempt;
        span.setAttributes({
          "sealpost.delivery_id": delivery.deliveryId,
          "sealpost.account_id": delivery.accountId,
          "sealpost.run": delivery.run,
          "sealpost.number": attempt.number,
          "sealpost.outcome": attempt.outcome,
          "sealpost.next": next.status,
          "sealpost.recorded": recorded,
          "http.request.method": "POST",
          // The URL is in its normal form. Customers put tokens into paths.
          "server.address": targetUrl.split("/", 3)[2] ?? "",
          ...(statusCode !== null && { "http.response.status_code": statusCode }),
          ...(errorCode !== null && { "error.type": errorCode }),
        });
        let atMs = beganAtMs;
        const steps = { dns: dnsMs, connect: connectMs, tls: tlsMs, first_byte: firstByteMs };
        for (const [step, ms] of Object.entries(steps)) {
          atMs += ms ?? 0;
          if (ms !== null) span.addEvent(step, atMs);
        }
        span.addEvent("record", performance.now() + offsetMs);
        const hasFailed = errorCode !== null || recorded !== "ours";
        end(span, hasFailed, beganAtMs + attempt.endedAtMs - attempt.startedAtMs);
      },
    },
  };
}

/** Whether the collector answers, and how fast, nobody notices who delivers. */
async function startSending({ config, registry, log }: TracesOptions): Promise<SpanProcessor> {
  const [{ ExportResultCode, parseKeyPairsIntoRecord }, { BatchSpanProcessor }, { OTLPTraceExporter }] =
    await Promise.all([
      import("@opentelemetry/core"),
      import("@opentelemetry/sdk-trace"),
      import("@opentelemetry/exporter-trace-otlp-proto"),
    ]);
  const exporter = new OTLPTraceExporter({
    url: `${config.otelExporterOtlpEndpoint}/v1/traces`,
    headers: parseKeyPairsIntoRecord(config.otelExporterOtlpHeaders ?? ""),
    timeoutMillis: SENT_WITHIN_MS,
  });
  const dropped = createDroppedSpans(registry);
  const queueFull = dropped.of({ why: "queue_full" });
  const notSent = dropped.of({ why: "not_sent" });
  let waiting = 0;
  let isAway = false;
  const batches = new BatchSpanProcessor({
    exporter: {
      export: (spans, done) => {
        waiting -= spans.length;
        exporter.export(spans, (result) => {
          const hasFailed = result.code !== ExportResultCode.SUCCESS;
          if (hasFailed) notSent.add(spans.length);
          if (hasFailed && !isAway) log.warn({ err: result.error }, "the collector takes no spans");
          isAway = hasFailed;
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
    },
    maxQueueSize: WAITING_MAX,
    scheduledDelayMillis: SENT_WITHIN_MS,
  });
  return {
    onStart: () => undefined,
    // What its queue has no room for it would drop in silence.
    onEnd: (span) => {
      if (waiting >= WAITING_MAX) return queueFull.add();
      waiting++;
      batches.onEnd(span);
    },
    forceFlush: () => batches.forceFlush(),
    shutdown: () => batches.shutdown(),
  };
}
