// Traces with real processes, a real receiver and a collector that decodes what it is sent.
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startTraces } from "../../src/app/traces.ts";
import { readConfig } from "../../src/base/config/config.ts";
import { createMetricsRegistry } from "../../src/base/metrics/registry.ts";
import type { CompletedRequest } from "../../src/http/request-context.ts";
import { isComplaint } from "../support/child-processes.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { begin, createTestAccount, createTestKey, publish, publishAny } from "../support/installation.ts";
import { type CollectedSpan, startCollector } from "../support/otlp-collector.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLERS_ID = "00f067aa0ba902b7";
const TOKEN = "planted-secret-in-the-query";

/** Fails every attempt at `/down`. */
const answer = ({ path }: { path: string }) => ({ status: path.startsWith("/down") ? 503 : 200 });

describe("a delivery's trace", () => {
  let database: TestDatabase;
  let receiver: Receiver;
  let collector: Awaited<ReturnType<typeof startCollector>>;
  let api: SealpostProcess;
  let dispatcher: SealpostProcess;
  let accountId: string;

  beforeAll(async () => {
    database = await createTestDatabase();
    receiver = await startReceiver({ handler: answer });
    collector = await startCollector();
    const env = {
      DATABASE_URL: database.url,
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_HEADERS: "authorization=Bearer%20of-the-collector",
      RETRY_WINDOW_SECONDS: "1",
      ...targetsEnv([receiver]),
    };
    [dispatcher, api] = await Promise.all([startProcess("dispatch", env), startProcess("serve", env)]);
    ({ accountId } = await createTestAccount(database, receiver.url(`/hooks/${TOKEN}?token=${TOKEN}`).href));
  });
  afterAll(async () => {
    expect(await Promise.all([api.stop(), dispatcher.stop()])).toEqual([0, 0]);
    collector.close();
    await receiver.close();
    await database.drop();
  });

  const spansIn = (traceId: string) => collector.spans.filter((span) => span.traceId === traceId);
  const named = (spans: readonly CollectedSpan[], name: string) => spans.find((span) => span.name === name)!;

  test("goes from its caller's span to its receiver's", async () => {
    const { apiKey } = await createTestKey(database.pool, accountId);
    const response = await fetch(`${api.url}/v1/analyses`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${apiKey}`,
        "content-type": "application/json",
        "idempotency-key": "once",
        traceparent: `00-${TRACE_ID}-${CALLERS_ID}-01`,
      },
      body: '{"analysis":{"id":"a-1","status":"succeeded","text":"planted-secret-in-the-body"}}',
    });
    const { delivery_id } = (await response.json()) as { delivery_id: string };
    const [request] = await receiver.waitForRequests(1);
    await collector.until(() => spansIn(TRACE_ID).length > 1);

    const spans = spansIn(TRACE_ID);
    expect(spans.map(({ name }) => name).sort()).toEqual(["attempt", "publish"]);
    const published = named(spans, "publish");
    const attempt = named(spans, "attempt");
    expect([published.parentId, attempt.parentId]).toEqual([CALLERS_ID, published.spanId]);
    expect(request!.headers.traceparent).toBe(`00-${TRACE_ID}-${attempt.spanId}-01`);

    expect(attempt.attributes).toMatchObject({
      "server.address": `localhost:${receiver.port}`,
      "http.response.status_code": 200n,
      "sealpost.account_id": accountId,
      "sealpost.delivery_id": delivery_id,
      "sealpost.outcome": "succeeded",
      "sealpost.recorded": "ours",
    });
    const steps = ["claim", "dns", "connect", "tls", "first_byte", "record"];
    expect(attempt.events.map(({ name }) => name)).toEqual(steps);
    const times = attempt.events.map(({ at }) => at);
    expect(times.toSorted((a, b) => Number(a - b))).toEqual(times);
    expect(times[0]! <= attempt.startedAt && attempt.endedAt <= times.at(-1)!).toBe(true);
    expect([published.kind, attempt.kind]).toEqual([2, 3]);
    expect(attempt.resource).toMatchObject({ "service.name": "sealpost" });
    expect(collector.headers[0]).toMatchObject({
      path: "/v1/traces",
      authorization: "Bearer of-the-collector",
    });
    // Nothing of an URL but its host, no body, no header.
    const sent = JSON.stringify(collector.spans, (_, value) =>
      typeof value === "bigint" ? `${value}` : value,
    );
    expect(sent).not.toMatch(/planted-secret|whsec_|svc_test_|v1=/);
  });

  test("is the one of the SQL transaction that published, or the one that the delivery's id names", async () => {
    const before = receiver.requests.length;
    const caller = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
    const { client, commit } = await begin(database.pool, `set local sealpost.traceparent = '${caller}'`);
    await publish(client, accountId, '{"id":"b-1","status":"succeeded"}');
    await commit();
    const down = await createTestAccount(database, receiver.url("/down").href);
    const id = await publish(database.pool, down.accountId, '{"id":"b-2","status":"failed"}');
    const attemptsIn = (traceId: string) => spansIn(traceId).filter(({ name }) => name === "attempt");
    const triedIn = () => attemptsIn(id.replaceAll("-", ""));
    await collector.until(() => attemptsIn("a".repeat(32)).length > 0 && triedIn().length > 1);
    expect(attemptsIn("a".repeat(32)).map(({ parentId }) => parentId)).toEqual(["b".repeat(16)]);
    const tried = triedIn();
    expect(tried.every(({ parentId, hasFailed }) => parentId === "" && hasFailed)).toBe(true);
    expect(tried[0]!.attributes).toMatchObject({ "error.type": "status_503", "sealpost.number": 1n });
    expect(receiver.requests.slice(before).map(({ headers }) => headers.traceparent)).not.toContain(
      undefined,
    );
  });

  test("that its caller does not sample goes on as it came, and nothing is sent of it", async () => {
    const before = receiver.requests.length;
    const caller = `00-${"c".repeat(32)}-${"d".repeat(16)}-00`;
    const { client, commit } = await begin(database.pool, `set local sealpost.traceparent = '${caller}'`);
    await publish(client, accountId, '{"id":"c-1","status":"succeeded"}');
    await commit();
    await expect
      .poll(() => receiver.requests.slice(before).map(({ headers }) => headers.traceparent))
      .toContain(caller);
    expect(spansIn("c".repeat(32))).toEqual([]);
  });
});

describe("a collector that", () => {
  test.each([
    ["refuses what it is sent", () => 400],
    ["never answers", () => null],
    ["is not there", null],
  ])("%s is noticed by nobody who waits for a webhook", async (_, answerOf) => {
    const database = await createTestDatabase();
    const receiver = await startReceiver();
    const collector = await startCollector(answerOf ?? undefined);
    if (answerOf === null) collector.close();
    const env = { DATABASE_URL: database.url, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url };
    const dispatcher = await startProcess("dispatch", { ...env, ...targetsEnv([receiver]) });
    const { accountId } = await createTestAccount(database, receiver.url("/").href);
    await publishAny(database.pool, accountId, 20);
    await receiver.waitForRequests(20);
    const metrics = async () => await (await fetch(`${dispatcher.metricsUrl}/metrics`)).text();
    const dropped = /^sealpost_spans_dropped_total\{why="not_sent"\} [1-9]/m;
    await expect.poll(metrics, { timeout: patience(20_000) }).toMatch(dropped);
    // The log comes another way than the metrics, and may come later.
    const told = () => dispatcher.lines.filter(isComplaint);
    const complaint = { level: "warn", msg: "the collector takes no spans" };
    await expect.poll(told, { timeout: patience(5_000) }).toMatchObject([complaint]);
    await publishAny(database.pool, accountId, 20);
    await receiver.waitForRequests(40);
    expect(await dispatcher.stop()).toBe(0);
    collector.close();
    await receiver.close();
    await database.drop();
  });

  test("is slow is kept from the memory: what finds no room is dropped, and counted", async () => {
    const collector = await startCollector(() => null);
    const registry = createMetricsRegistry();
    const config = readConfig({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url });
    const log = pino({ level: "silent" });
    const traces = await startTraces({ config, process: "serve", registry, log });
    const request = { operationKey: "analyses.publish", method: "POST", status: 202, problemCode: null };
    const completed = { ...request, durationMs: 1, requestId: "r", accountId: null } as CompletedRequest;
    for (let n = 0; n < 10_000; n++) traces.beginRequest!("analyses.publish", null)!.end(completed);
    const [, dropped] = /why="queue_full"\} (\d+)/.exec(await registry.read()) ?? [];
    // One batch is on its way, and the queue is full.
    expect(Number(dropped)).toBe(10_000 - 4_096 - 512);
    collector.close();
    await traces.stop();
  });
});

describe("without a collector", () => {
  /** Says what is loaded of OpenTelemetry, but for its API, which prom-client looks into. */
  const SPY = `import { registerHooks } from "node:module";
    registerHooks({ load(url, context, next) {
      if (/@opentelemetry\\/(?!api\\/)/.test(url)) console.error("loaded", url);
      return next(url, context);
    } });`;

  test.each(["serve", "dispatch"] as const)("%s loads nothing of it", async (command) => {
    const database = await createTestDatabase();
    const nodeFlags = ["--import", `data:text/javascript,${encodeURIComponent(SPY)}`];
    const start = (env: Record<string, string>) =>
      startProcess(command, { DATABASE_URL: database.url, ...env }, { nodeFlags });
    const off = await start({});
    const on = await start({ OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" });
    expect(await Promise.all([off.stop(), on.stop()])).toEqual([0, 0]);
    expect(off.errors).toBe("");
    expect(on.errors).toContain("loaded");
    await database.drop();
  });
});
