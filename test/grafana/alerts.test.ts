import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { GRAFANA } from "../support/dashboards.ts";
import { runPromtool } from "../support/prometheus.ts";

const FOLDER = `${GRAFANA}prometheus/`;
const RULES = readFileSync(`${FOLDER}alerts.yml`, "utf8");
const TESTS = readFileSync(`${FOLDER}alerts.test.yml`, "utf8");
const DOCUMENT = readFileSync(fileURLToPath(new URL("../../docs/runbook.md", import.meta.url)), "utf8");

/** Each alert's own lines. */
const alerts = RULES.split(/^ {6}- alert: /m)
  .slice(1)
  .map((text) => ({ name: text.slice(0, text.indexOf("\n")), text }));

/** Those that are fired by their causes. */
const caused = globSync("test/{grafana/causes-*,workspace/alert-causes}.slow.test.ts")
  .flatMap((file) => [...readFileSync(file, "utf8").matchAll(/\balerts: \[([^\]]*)\]/g)])
  .flatMap(([, names = ""]) => [...names.matchAll(/"(\w+)"/g)].map(([, name = ""]) => name));

describe("every alert", () => {
  test("is fired by a cause of its own, on a real Prometheus", () => {
    expect(caused.sort()).toEqual(alerts.map(({ name }) => name).sort());
  });

  test("that has to be there is there", () => {
    const names = alerts.map(({ name }) => name);
    // Oldest due over 2 min, success rate fell, dispatcher gone, partitions missing, clock off, database slow, old
    // partition kept, limiter store failing.
    expect(names).toEqual(
      expect.arrayContaining([
        "SealpostDeliveriesOverdue",
        "SealpostSuccessRateFell",
        "SealpostDispatcherGone",
        "SealpostPartitionsMissing",
        "SealpostClockOff",
        "SealpostDatabaseSlow",
        "SealpostOldPartitionKept",
        "SealpostLimiterFailing",
      ]),
    );
    expect(new Set(names).size).toBe(names.length);
  });

  test.each(alerts)("$name says what it found, what to do, and where the rest stands", ({ name, text }) => {
    expect(text).toMatch(/ {8}labels: \{ severity: (?:page|ticket) \}/);
    expect(text).toMatch(/ {10}summary: \S/);
    expect(text).toMatch(/ {10}description: >-\n {12}\S/);
    expect(text).toContain(`runbook_url: docs/runbook.md#${name.toLowerCase()}\n`);
    const paragraph =
      DOCUMENT.split(new RegExp(`^### ${name}$`, "m"))[1]
        ?.split(/^#/m)[0]
        ?.trim() ?? "";
    expect(paragraph.length, `a paragraph "### ${name}" in docs/runbook.md`).toBeGreaterThan(100);
  });

  test.each(alerts)("$name is tested silent and firing", ({ name }) => {
    const expected = [...TESTS.matchAll(new RegExp(`alertname="${name}".*\\n.*\\n +exp_samples: (.*)`, "g"))];
    expect(expected.map(([, samples]) => samples)).toEqual(expect.arrayContaining(["[]", "[{ value: 1 }]"]));
  });
});

describe("with promtool", { tags: ["slow"] }, () => {
  test("the rules and the configuration are well-formed", () => {
    expect(runPromtool(["check", "config", `${FOLDER}prometheus.yml`])).toMatchObject({ ok: true });
    expect(runPromtool(["check", "rules", "--lint-fatal", `${FOLDER}alerts.yml`])).toMatchObject({
      ok: true,
    });
  });

  test("each is silent when it should be, and fires when it should", () => {
    const { ok, output } = runPromtool(["test", "rules", `${FOLDER}alerts.test.yml`]);
    expect(ok, output).toBe(true);
  });

  test("each of them turned round would be noticed", () => {
    const folder = mkdtempSync(join(tmpdir(), "sealpost-alerts-"));
    try {
      const changed = alerts.reduce((rules, { text }) => rules.replace(text, turnedRound(text)), RULES);
      writeFileSync(join(folder, "alerts.yml"), changed);
      writeFileSync(join(folder, "alerts.test.yml"), TESTS);
      const { output } = runPromtool(["test", "rules", join(folder, "alerts.test.yml")]);
      expect(alerts.map(({ name }) => name).filter((name) => !output.includes(name))).toEqual([]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

/** The alert firing where it should be silent, or silent where it should fire. */
function turnedRound(alert: string): string {
  const turned = alert.replace(/^ {8}expr: (?:\|\n)?[\s\S]*?(?=^ {8}(?:for|labels):)/m, (expr) =>
    expr.includes("== 0")
      ? expr.replaceAll("== 0", "== 7").replaceAll(/absent\([^)]*\)/g, "vector(1)")
      : expr
          .replace("< 0.8 * avg", "> 2 * avg")
          .replace(/([<>]) (?=[\d.-]+\s*(?:\n|and))/, (_, sign) => (sign === "<" ? "> " : "< -1 + ")),
  );
  if (turned === alert) throw new Error(`Nothing to turn round in ${alert}`);
  return turned;
}
