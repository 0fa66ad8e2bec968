import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { afterEach, expect, test } from "vitest";
import { isComplaint } from "../../support/child-processes.ts";
import { createTestDatabase } from "../../support/database.ts";
import { forgetOpen, makePartitionsFrom, SECRETS_KEY } from "../../support/installation.ts";
import { runProcess, SealpostProcess, startProcess } from "../../support/sealpost-process.ts";

let running: SealpostProcess[] = [];

afterEach(async () => {
  await Promise.all(running.map((one) => one.stop()));
  running = [];
});

async function start(command: "serve" | "dispatch", databaseUrl: string): Promise<SealpostProcess> {
  const started = await startProcess(command, { DATABASE_URL: databaseUrl });
  running.push(started);
  return started;
}

async function read(url: string): Promise<{ status: number; text: string }> {
  const response = await fetch(url);
  return { status: response.status, text: await response.text() };
}

test.each(["serve", "dispatch"] as const)("%s counts, is ready, and ends in peace", async (command) => {
  const database = await createTestDatabase();
  const started = await start(command, database.url);
  expect(await read(`${started.metricsUrl}/readyz`)).toEqual({ status: 200, text: '{"status":"ok"}' });
  const { text } = await read(`${started.metricsUrl}/metrics`);
  expect(text).toMatch(/^sealpost_database_up 1$/m);
  expect(text).toMatch(/^sealpost_clock_difference_seconds -?[\d.e-]+$/m);
  expect(text).toMatch(/^nodejs_eventloop_utilization_ratio /m);
  const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8"));
  expect(text).toContain(
    `sealpost_build_info{version="${version}",node="${process.versions.node}",cell="none"} 1\n`,
  );
  // As Prometheus's own linter has it.
  const types = [...text.matchAll(/^# TYPE (\S+) (\w+)$/gm)];
  expect(types.filter(([, name = "", type]) => name.endsWith("_total") !== (type === "counter"))).toEqual([]);
  expect(text).toMatch(
    command === "serve"
      ? /^sealpost_limiter_failures_total 0$/m
      : /^sealpost_partitions_ahead\{table="bodies"\} 14$/m,
  );
  if (command === "serve") {
    const problems = async () => (await read(`${started.metricsUrl}/metrics`)).text;
    expect(text).toMatch(/^sealpost_api_problems_total\{code="too_many_replays"\} 0$/m);
    expect((await read(`${started.url}/nowhere`)).status).toBe(404);
    await expect.poll(problems).toMatch(/^sealpost_api_problems_total\{code="not_found"\} 1$/m);
  } else {
    expect(text).toMatch(/^sealpost_attempts_in_flight_max 1000$/m);
    expect(text).toMatch(/^sealpost_accounts\{state="over_budget"\} 0$/m);
    expect(text).toMatch(/^sealpost_faults_total\{work="keep_house"\} 0$/m);
  }
  expect(await started.stop()).toBe(0);
  await database.drop();
});

test("a day that cannot be dropped, because something in it is still open, is seen", async () => {
  const database = await createTestDatabase();
  await makePartitionsFrom(database.pool, "2020-01-01", 1);
  await database.pool.query(
    `insert into sealpost.open_deliveries (delivery_id, account_id, lane, due_at, wake_at, body_bytes,
       lease_token, lease_until)
     values (sealpost.uuid_v7('2020-01-01 12:00Z'), gen_random_uuid(), 1, 'infinity', 'infinity', 1,
       gen_random_uuid(), 'infinity')`,
  );
  const started = await start("dispatch", database.url);
  const overstays = async () => {
    const { text } = await read(`${started.metricsUrl}/metrics`);
    return text.match(/(?<=^sealpost_partition_overstay_seconds\{table="bodies"\} )\d+/m)?.[0];
  };
  // Five years and more, less the eight days that a body is kept.
  expect(Number(await overstays())).toBeGreaterThan(5 * 365 * 86_400);
  await expect.poll(() => started.output()).toContain("an old partition stays");
  await forgetOpen(database.pool);
  await started.stop();
  // The next one begins with keeping house.
  const next = await start("dispatch", database.url);
  await expect.poll(() => next.output()).toContain('"partition":"bodies_20200101"');
  await next.stop();
  await database.drop();
});

test("a dispatcher whose database is away says so, and says nothing of a queue that it cannot see", async () => {
  const env = { DATABASE_URL: "postgres://ada:hunter2@127.0.0.1:1/sealpost" };
  const started = new SealpostProcess(["dispatch"], { ...env, SECRETS_KEY: SECRETS_KEY.toString("base64") });
  running.push(started);
  const { metrics_url: url } = await started.waitForLine(({ metrics_url }) => metrics_url !== undefined);
  const { text } = await read(`${url}/metrics`);
  expect(text).toMatch(/^sealpost_database_up 0$/m);
  expect(text).not.toMatch(/^sealpost_(?:deliveries_due|oldest_due_seconds|partitions_ahead)/m);
  expect(text).toMatch(/^sealpost_leader 0$/m);
  expect((await read(`${url}/healthz`)).status).toBe(200);
  expect(await read(`${url}/readyz`)).toEqual({
    status: 503,
    text: '{"status":"not_ready","hindrances":["The database does not answer (ECONNREFUSED)."]}',
  });
  expect(started.output()).not.toContain("hunter2");
  expect(started.lines.filter(isComplaint)).toMatchObject([{ msg: expect.stringContaining("ECONNREFUSED") }]);
  expect(await started.stop()).toBe(0);
});

test("a metrics port that is taken is a usage error in one sentence", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as { port: number };
  const { code, stderr } = await runProcess(["dispatch"], {
    env: {
      DATABASE_URL: "postgres://ada@127.0.0.1:1/sealpost",
      METRICS_PORT: `${port}`,
      SECRETS_KEY: SECRETS_KEY.toString("base64"),
    },
  });
  expect(stderr).toBe(
    `The metrics server cannot listen on HOST 127.0.0.1, METRICS_PORT ${port} (EADDRINUSE): ` +
      "another process already listens there; stop it or choose another port.\n",
  );
  expect(code).toBe(2);
  other.close();
});
