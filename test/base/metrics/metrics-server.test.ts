import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startMetricsServer } from "../../../src/base/metrics/metrics-server.ts";
import { createMetricsRegistry } from "../../../src/base/metrics/registry.ts";

let server: Awaited<ReturnType<typeof startMetricsServer>>;
let problems: string[] = [];

beforeEach(async () => {
  const registry = createMetricsRegistry();
  registry.addProcess();
  server = await startMetricsServer({
    registry,
    host: "127.0.0.1",
    port: 0,
    checkReadiness: async () => problems,
  });
});
afterEach(() => server.close());

const ask = (path: string, method = "GET") => fetch(`http://127.0.0.1:${server.port}${path}`, { method });

test("metrics are Prometheus's text, those of the process included", async () => {
  const response = await ask("/metrics?whatever=1");
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect(await response.text()).toMatch(/^nodejs_eventloop_utilization_ratio [\d.e-]+$/m);
});

test("a process that lives says so, and whether it can work", async () => {
  expect(await (await ask("/healthz")).json()).toEqual({ status: "ok" });
  expect((await ask("/readyz")).status).toBe(200);
  problems = ["The database does not answer (57P03)."];
  const response = await ask("/readyz");
  expect(response.status).toBe(503);
  expect(await response.json()).toEqual({ status: "not_ready", hindrances: problems });
  expect((await ask("/healthz")).status).toBe(200);
});

test("nothing else is there, and nothing is changed", async () => {
  expect((await ask("/")).status).toBe(404);
  expect((await ask("/__proto__")).status).toBe(404);
  const response = await ask("/metrics", "POST");
  expect([response.status, response.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
  const head = await ask("/healthz", "HEAD");
  expect([head.status, await head.text()]).toEqual([200, ""]);
});

test("the image's health check asks it", async () => {
  const check = async (port: number) => {
    const script = fileURLToPath(new URL("../../../scripts/healthcheck.mjs", import.meta.url));
    const env = { METRICS_PORT: `${port}`, HOST: "0.0.0.0" };
    const child = spawn(process.execPath, [script], { env });
    const [code] = await once(child, "exit");
    return code;
  };
  expect(await check(server.port)).toBe(0);
  expect(await check(1)).toBe(1);
});

test("a port that is taken is said at once", async () => {
  const again = startMetricsServer({
    registry: createMetricsRegistry(),
    host: "127.0.0.1",
    port: server.port,
    checkReadiness: async () => [],
  });
  await expect(again).rejects.toMatchObject({ code: "EADDRINUSE" });
});

test("names only counters as counters, Node's own metrics included", async () => {
  const registry = createMetricsRegistry();
  registry.addProcess();
  const text = await registry.read();
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type]) => ({ name, type }));
  expect(types.length).toBeGreaterThan(20);
  expect(types.filter(({ name, type }) => name.endsWith("_total") !== (type === "counter"))).toEqual([]);
});
