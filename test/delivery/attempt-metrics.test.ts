import { expect, test } from "vitest";
import { createFaults } from "../../src/base/metrics/database-metrics.ts";
import { createDispatchMetrics } from "../../src/base/metrics/dispatch-metrics.ts";
import { createMetricsRegistry } from "../../src/base/metrics/registry.ts";
import { DELIVERY_STATUSES, END_REASONS, hasEnded, OUTCOMES } from "../../src/base/model/statuses.ts";
import {
  createAttemptMetrics,
  type DispatchObserver,
  tellAll,
} from "../../src/delivery/attempt-observers.ts";
import type { LeasedDelivery } from "../../src/delivery/claim-sql.ts";
import type { AttemptRow, Recording } from "../../src/delivery/record-sql.ts";

const CREATED_AT_MS = 1_763_600_000_000;

function counting() {
  const registry = createMetricsRegistry();
  const observer = createAttemptMetrics(createDispatchMetrics(registry), createFaults(registry));
  /** Series that are not 0, without histograms' buckets. */
  const counted = async () => {
    const lines = (await registry.read()).split("\n").filter((line) => /^sealpost(?!.*_bucket)/.test(line));
    return Object.fromEntries(
      lines.map((line) => line.split(/ (?=[^ ]+$)/)).filter(([, value]) => value !== "0"),
    );
  };
  const labelsOf = async (metric: string, label: string) => {
    const lines = (await registry.read()).matchAll(new RegExp(`^${metric}\\{.*?\\b${label}="(\\w+)"`, "gm"));
    return new Set([...lines].map(([, value = ""]) => value));
  };
  return { observer, counted, labelsOf };
}

const leased = (changes: Partial<LeasedDelivery> = {}) =>
  ({
    kind: "leased",
    run: 1,
    createdAtMs: CREATED_AT_MS,
    wasInterrupted: false,
    ...changes,
  }) as LeasedDelivery;

function attempt(changes: Partial<AttemptRow> = {}): AttemptRow {
  const startedAtMs = CREATED_AT_MS + 20;
  const steps = { dnsMs: 1, connectMs: 2, tlsMs: 3, firstByteMs: 4 };
  const ends = {
    endedAtMs: startedAtMs + 100,
    outcome: "succeeded",
    errorCode: null,
    statusCode: 200,
  } as const;
  const target = { targetUrl: "https://a.example.com/", remoteAddress: null, responseHeaders: null };
  return { number: 1, startedAtMs, ...steps, ...ends, ...target, responseExcerpt: null, ...changes };
}

function record(
  observer: Pick<DispatchObserver, "attemptRecorded">,
  next: Recording["next"],
  row: AttemptRow | null,
  changes: Partial<LeasedDelivery> = {},
  errorCode: string | null = null,
) {
  const recording = { deliveryId: "", leaseToken: "", run: 1, attempt: row, next };
  const result = errorCode === null ? null : ({ errorCode } as never);
  observer.attemptRecorded(leased(changes), { recording, result, turn: null }, "ours");
}

test("every outcome, and every way to end, is there from the start", async () => {
  const { labelsOf } = counting();
  expect(await labelsOf("sealpost_attempts_total", "outcome")).toEqual(new Set(OUTCOMES));
  const ended = "sealpost_deliveries_ended_total";
  expect(await labelsOf(ended, "status")).toEqual(new Set(DELIVERY_STATUSES.filter(hasEnded)));
  expect(await labelsOf(ended, "reason")).toEqual(new Set(["none", ...END_REASONS]));
});

test("a first attempt that succeeds is counted with its times", async () => {
  const { observer, counted } = counting();
  record(observer, { status: "succeeded" }, attempt());
  expect(await counted()).toEqual({
    'sealpost_attempts_total{outcome="succeeded",error_code="none"}': "1",
    'sealpost_deliveries_ended_total{status="succeeded",reason="none"}': "1",
    sealpost_first_attempt_wait_seconds_sum: "0.02",
    sealpost_first_attempt_wait_seconds_count: "1",
    'sealpost_delivery_seconds_sum{attempt="first"}': "0.12",
    'sealpost_delivery_seconds_count{attempt="first"}': "1",
    sealpost_attempt_seconds_sum: "0.1",
    sealpost_attempt_seconds_count: "1",
    'sealpost_attempt_step_seconds_sum{step="dns"}': "0.001",
    'sealpost_attempt_step_seconds_count{step="dns"}': "1",
    'sealpost_attempt_step_seconds_sum{step="connect"}': "0.002",
    'sealpost_attempt_step_seconds_count{step="connect"}': "1",
    'sealpost_attempt_step_seconds_sum{step="tls"}': "0.003",
    'sealpost_attempt_step_seconds_count{step="tls"}': "1",
    'sealpost_attempt_step_seconds_sum{step="first_byte"}': "0.004",
    'sealpost_attempt_step_seconds_count{step="first_byte"}': "1",
  });
});

test.each([
  ["status_503", "status_503"],
  ["status_999", "status_other"],
  ["connect_timeout", "connect_timeout"],
] as const)("a failure with %s is counted as %s", async (errorCode, label) => {
  const { observer, counted } = counting();
  const row = attempt({ outcome: "rejected", errorCode });
  record(observer, { status: "failed", dueAtMs: 0 }, row);
  expect(await counted()).toMatchObject({
    [`sealpost_attempts_total{outcome="rejected",error_code="${label}"}`]: "1",
  });
});

test("retries and replays that succeed are told apart, and wait for nobody", async () => {
  const { observer, counted } = counting();
  record(observer, { status: "succeeded" }, attempt({ number: 2 }));
  record(observer, { status: "succeeded" }, attempt(), { run: 2 });
  const found = await counted();
  expect(found).toMatchObject({
    'sealpost_delivery_seconds_count{attempt="retry"}': "1",
    'sealpost_delivery_seconds_count{attempt="replay"}': "1",
  });
  expect(found).not.toHaveProperty("sealpost_first_attempt_wait_seconds_count");
});

test("what ends without an attempt, and what is given back, is no attempt", async () => {
  const { observer, counted } = counting();
  record(observer, { status: "abandoned", reason: "no_target", errorCode: null }, null);
  record(observer, { status: "released", dueAtMs: 0 }, null, {}, "egress_proxy_failed");
  record(observer, { status: "released", dueAtMs: 0 }, null);
  expect(await counted()).toEqual({
    'sealpost_deliveries_ended_total{status="abandoned",reason="no_target"}': "1",
    'sealpost_leases_returned_total{why="egress_proxy_failed"}': "1",
    'sealpost_leases_returned_total{why="not_posted"}': "1",
  });
});

test("an attempt that was cut is counted by whoever finds it; a result that does not count is not", async () => {
  const { observer, counted } = counting();
  const recording = {
    deliveryId: "",
    leaseToken: "",
    run: 1,
    attempt: attempt(),
    next: { status: "succeeded" },
  };
  const delivered = { recording: recording as Recording, result: null, turn: null };
  observer.attemptRecorded(leased({ wasInterrupted: true }), delivered, "taken_over");
  expect(await counted()).toEqual({
    'sealpost_attempts_total{outcome="interrupted",error_code="interrupted"}': "1",
    sealpost_leases_recovered_total: "1",
    'sealpost_attempts_unrecorded_total{how="taken_over"}': "1",
  });
});

test("all else that happens is counted, and both of two observers are told", async () => {
  const one = counting();
  const other = counting();
  const both = tellAll([one.observer, other.observer]);
  both.mustBeQuarantined("an-id");
  both.failed("record", new Error("away"));
  record(both, { status: "succeeded" }, attempt());
  const expected = {
    sealpost_deliveries_sent_alone_total: "1",
    'sealpost_faults_total{work="record"}': "1",
    sealpost_attempt_seconds_count: "1",
  };
  expect(await one.counted()).toMatchObject(expected);
  expect(await other.counted()).toEqual(await one.counted());
});
