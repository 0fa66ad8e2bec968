import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BusyInstallation, startBusyInstallation } from "../support/busy-installation.ts";
import { filledIn, GRAFANA, namedIn, type Panel, readDashboards } from "../support/dashboards.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type Prometheus, runPromtool, type Sample, startPrometheus } from "../support/prometheus.ts";
import { patience } from "../support/time-limits.ts";

const dashboards = readDashboards();
const targets = dashboards.flatMap(({ file, panels }) =>
  panels.flatMap(({ title, targets: queries = [] }) =>
    queries.map(({ expr, legendFormat }) => ({ panel: `${file}: ${title}`, expr, legendFormat })),
  ),
);

/** Chosen at the top of the dashboard, so that it can be imported beside any Prometheus. */
const DATASOURCE = "$" + "{datasource}";

describe("a dashboard", () => {
  test("is there for each question", () => {
    expect(dashboards.map(({ title }) => title).sort()).toEqual([
      "Are deliveries arriving?",
      "Is the API healthy?",
      "Is the queue keeping up?",
      "Is there room to grow?",
      "Which receivers are broken?",
    ]);
    expect(new Set(dashboards.map(({ uid }) => uid)).size).toBe(dashboards.length);
  });

  test.each(dashboards)("$file can be imported: ids of its own, no panel over another", ({ panels }) => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    for (const [index, panel] of panels.entries()) {
      expect(panel.gridPos.x + panel.gridPos.w).toBeLessThanOrEqual(24);
      expect(panels.slice(index + 1).filter((other) => overlap(panel, other))).toEqual([]);
      if (panel.targets !== undefined) expect(panel.datasource?.uid).toBe(DATASOURCE);
    }
  });
});

describe("with a real Prometheus", { tags: ["slow"] }, () => {
  let database: TestDatabase;
  let installation: BusyInstallation;
  let prometheus: Prometheus;
  let isWorking = true;
  let working: Promise<void>;

  beforeAll(async () => {
    database = await createTestDatabase();
    installation = await startBusyInstallation(database);
    prometheus = await startPrometheus(installation.jobs, `${GRAFANA}prometheus/alerts.yml`);
    working = (async () => {
      while (isWorking) await installation.work();
    })();
  });
  afterAll(async () => {
    isWorking = false;
    await working;
    await prometheus.close();
    await installation.stop();
    await database.drop();
  });

  test(
    "every panel's query answers with data, and its legend names labels that are there",
    async () => {
      const missing = async () => {
        const answers = await Promise.all(
          targets.map(async ({ panel, expr, legendFormat }) => {
            const samples = await prometheus.query(filledIn(expr));
            const numbers = samples.filter(({ value }) => Number.isFinite(value));
            const labels = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
            const isWhole = numbers.every(({ metric }) => labels.every((label) => label in metric));
            return numbers.length > 0 && isWhole ? [] : [`${panel}: ${expr}`];
          }),
        );
        return answers.flat();
      };
      await prometheus.until(missing, (left) => left.length === 0, 60_000);
    },
    patience(90_000),
  );

  test("every alert can be evaluated, and each metric and label that it names is there", async () => {
    const rules = await prometheus.until(
      () => prometheus.rules(),
      (all) => all.every(({ health }) => health === "ok"),
      30_000,
    );
    expect(rules).toHaveLength(alertNames().length);
    for (const { name, query } of rules) {
      for (const { metric, labels } of namedIn(query)) {
        const condition = [...labels].map((label) => `${label}!=""`).join(",");
        const selector = `count(${metric}{${condition}})`;
        // What a rule records is there a little later than what it is made of.
        const isOne = (samples: readonly Sample[]) => samples.length === 1;
        await prometheus
          .until(() => prometheus.query(selector), isOne, 15_000)
          .catch((cause: unknown) => {
            throw new Error(`${name}: ${selector} finds nothing`, { cause });
          });
      }
    }
  });

  test("a label value that an alert asks for is one that is there", async () => {
    // 5xx answers are what does not happen here.
    const selectors = (await prometheus.rules()).flatMap(({ query }) => query.match(/\w+\{[^}]*\}/g) ?? []);
    expect(selectors.length).toBeGreaterThan(5);
    for (const selector of selectors.filter((one) => !one.includes("status="))) {
      expect(await prometheus.query(`count(${selector})`), selector).toHaveLength(1);
    }
  });

  test("the text of each process is as promtool would have it", async () => {
    for (const { metricsUrl } of [...installation.dispatchers, installation.api]) {
      const text = await (await fetch(`${metricsUrl}/metrics`)).text();
      const ours = text.split("\n\n").filter((metric) => metric.startsWith("# HELP sealpost_"));
      expect(ours.length).toBeGreaterThan(5);
      const { ok, output } = runPromtool(["check", "metrics"], `${ours.join("\n")}\n`);
      expect(ok, output).toBe(true);
    }
  });

  test("a metric that nobody declares is noticed", async () => {
    expect(await prometheus.query("count(sealpost_no_such_metric)")).toEqual([]);
    expect(namedIn('sum by (le, pool) (rate(sealpost_a_bucket{job="x", status=~"5.."}[5m]))')).toEqual([
      { metric: "sealpost_a_bucket", labels: ["job", "status", "le", "pool"] },
    ]);
  });
});

function alertNames(): string[] {
  const text = readFileSync(`${GRAFANA}prometheus/alerts.yml`, "utf8");
  return [...text.matchAll(/^ +- alert: (\w+)$/gm)].map(([, name = ""]) => name);
}

function overlap({ gridPos: a }: Panel, { gridPos: b }: Panel): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
}
