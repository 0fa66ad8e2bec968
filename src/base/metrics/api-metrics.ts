import { LOG_SERVERS, STANDBY_FAULTS } from "../model/installation.ts";
import type { MetricsRegistry } from "./registry.ts";

export type ApiMetrics = ReturnType<typeof createApiMetrics>;

const REQUEST_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** The metrics of an API process. */
export function createApiMetrics(registry: MetricsRegistry) {
  return {
    requests: registry.counter({
      name: "sealpost_api_requests_total",
      help: "Requests by operation (page: needs no key; hook: runs a workflow; none: no such URL) and HTTP status.",
      unit: "requests",
      labels: { operation: null, status: null },
    }),
    requestSeconds: registry.histogram({
      name: "sealpost_api_request_seconds",
      help:
        "Time from a request's arrival to the end of its response. A refresh of the console waits up to 0.5 s for " +
        "others.",
      labels: { operation: null },
      buckets: REQUEST_SECONDS,
    }),
    problems: registry.counter({
      name: "sealpost_api_problems_total",
      help: "Requests refused or failed, by the code of the problem that they got (too_many_replays, for example).",
      unit: "requests",
      labels: { code: null },
    }),
    limiterRefusals: registry.counter({
      name: "sealpost_limiter_refusals_total",
      help: "Requests rejected with 429, by whose limit: API key, account (all keys; publishing) or address.",
      unit: "requests",
      labels: { policy: ["key", "account", "address"] },
    }),
    limiterFailures: registry.counter({
      name: "sealpost_limiter_failures_total",
      help: "Requests that a process counted by itself because the rate limiter's store failed.",
      unit: "requests",
    }),
    logReads: registry.counter({
      name: "sealpost_log_reads_total",
      help: "Lists of the delivery log, by the server that answered: the primary, or the standby (READ_DATABASE_URL).",
      unit: "reads",
      labels: { server: LOG_SERVERS },
    }),
    standbyFaults: registry.counter({
      name: "sealpost_log_standby_faults_total",
      help:
        "How often the standby was set aside, or tried again in vain: away, behind, refused (promoted, or another " +
        "server); or ended a statement (cancelled).",
      unit: "faults",
      labels: { why: STANDBY_FAULTS },
    }),
    readsWaiting: registry.gauge({
      name: "sealpost_api_reads_waiting",
      help: "Feed readers waiting for something to read; at most 4,000.",
      unit: "requests",
    }),
    connections: registry.gauge({
      name: "sealpost_api_connections",
      help: "Open connections of clients and of the proxies in front.",
      unit: "connections",
    }),
    connectionsClosed: registry.counter({
      name: "sealpost_api_connections_closed_total",
      help:
        "Connections that we closed: at once because there were too many in all, or from one client address; or " +
        "because the client hardly read its response, or pipelined too many requests.",
      unit: "connections",
      labels: { why: ["all", "address", "slow_reader", "pipelining"] },
    }),
  };
}
