import { describe, expect, test } from "vitest";
import { createMetricsRegistry } from "../../../src/base/metrics/registry.ts";
import { declaredMetrics } from "../../support/metrics-table.ts";

const lines = async (read: Promise<string>) =>
  (await read).split("\n").filter((line) => /^sealpost/.test(line));

describe("a metric", () => {
  test("whose labels are known is there from the start, as 0", async () => {
    const registry = createMetricsRegistry();
    registry.counter({
      name: "sealpost_things_total",
      help: "Things.",
      unit: "things",
      labels: { size: ["small", "large"], colour: ["red"] },
    });
    expect(await lines(registry.read())).toEqual([
      'sealpost_things_total{size="small",colour="red"} 0',
      'sealpost_things_total{size="large",colour="red"} 0',
    ]);
  });

  test("has one series for the same labels, however often it is asked for", async () => {
    const registry = createMetricsRegistry();
    const things = registry.counter({
      name: "sealpost_things_total",
      help: "Things.",
      unit: "things",
      labels: { size: null },
    });
    expect(things.of({ size: "small" })).toBe(things.of({ size: "small" }));
    things.of({ size: "small" }).add();
    things.of({ size: "small" }).add(2);
    expect(await lines(registry.read())).toEqual(['sealpost_things_total{size="small"} 3']);
  });

  test("counts as other what would be a series too many", async () => {
    const registry = createMetricsRegistry();
    const things = registry.counter({
      name: "sealpost_things_total",
      help: "Things.",
      unit: "things",
      labels: { size: null },
    });
    for (let size = 0; size < 1_100; size++) things.of({ size: `${size}` }).add();
    const series = await lines(registry.read());
    expect(series).toHaveLength(1_001);
    expect(series).toContain('sealpost_things_total{size="other"} 100');
  });

  test("that is a gauge is not there before it is set, nor after it is cleared", async () => {
    const registry = createMetricsRegistry();
    const depth = registry.gauge({ name: "sealpost_depth", help: "Depth.", unit: "metres" });
    expect(await lines(registry.read())).toEqual([]);
    depth.of({}).set(7);
    expect(await lines(registry.read())).toEqual(["sealpost_depth 7"]);
    depth.clear();
    expect(await lines(registry.read())).toEqual([]);
  });

  test("that is read is prepared first", async () => {
    const registry = createMetricsRegistry();
    const depth = registry.gauge({ name: "sealpost_depth", help: "Depth.", unit: "metres" });
    registry.onRead(async () => depth.of({}).set(await Promise.resolve(3)));
    expect(await lines(registry.read())).toEqual(["sealpost_depth 3"]);
  });
});

describe("every metric of ours", () => {
  test.each(declaredMetrics())("$name is named, explained and measured as it should be", (metric) => {
    const { name, kind, help, unit, labels } = metric;
    expect(help).toMatch(/^[A-Z0-9].*[.]$/);
    expect(name.endsWith("_total")).toBe(kind === "counter");
    expect(/_seconds$/.test(name)).toBe(unit === "seconds");
    // A customer must not be able to make series.
    for (const label of Object.keys(labels))
      expect(label).not.toMatch(/account|host|url|address|(?:^|_)id$|key/);
    if ("buckets" in metric) {
      const buckets = metric.buckets as readonly number[];
      expect(buckets).toEqual([...buckets].sort((a, b) => a - b));
    }
  });

  test("has a name of its own", () => {
    const names = declaredMetrics().map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  });
});
