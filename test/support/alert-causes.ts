// Alerts that fire by their causes, on a real Prometheus beside real processes: the rules as they are, but for their
// patience. test/grafana/alerts.test.ts has all of them silent and firing, on series that are made up, and sees that
// each has a cause.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "vitest";
import { GRAFANA } from "./dashboards.ts";
import { type Prometheus, startPrometheus } from "./prometheus.ts";
import { patience } from "./time-limits.ts";

const FIRE_WITHIN_MS = 60_000;
/** What waits says what it waited for, also when the machine has become slow meanwhile. */
const TEST_MS = 5 * FIRE_WITHIN_MS;

export type Cause = {
  readonly what: string;
  readonly alerts: readonly string[];
  readonly begin: () => unknown;
  /** Absent: it stays so. */
  readonly end?: () => unknown;
};

/** Prometheus with all rules, none of which waits before it fires, or looks back for more than 15 s. */
export async function startAlerting(jobs: Readonly<Record<string, readonly string[]>>): Promise<Prometheus> {
  const folder = mkdtempSync(join(tmpdir(), "sealpost-causes-"));
  const rules = readFileSync(`${GRAFANA}prometheus/alerts.yml`, "utf8");
  const impatient = rules.replaceAll(/^ +for: .*\n/gm, "").replaceAll(/\[\d+[mhd]\]/g, "[15s]");
  writeFileSync(join(folder, "alerts.yml"), impatient);
  const prometheus = await startPrometheus(jobs, join(folder, "alerts.yml"));
  const close = async () => {
    await prometheus.close();
    rmSync(folder, { recursive: true });
  };
  return { ...prometheus, close };
}

/** Declares a test of each cause, in this order, and one that no alert outlasts a cause that has ended. */
export function playCauses(prometheus: () => Prometheus, causes: readonly Cause[]): void {
  async function firing(): Promise<readonly string[]> {
    const samples = await prometheus().query('ALERTS{alertstate="firing"}');
    return samples.map(({ metric }) => metric.alertname ?? "");
  }
  const until = (isDone: (firing: readonly string[]) => boolean) =>
    prometheus().until(firing, isDone, FIRE_WITHIN_MS);
  const untilAll = (names: readonly string[]) => until((fire) => names.every((name) => fire.includes(name)));
  const untilNone = (names: readonly string[]) => until((fire) => !names.some((name) => fire.includes(name)));
  const ended = causes.filter(({ end }) => end !== undefined).flatMap(({ alerts }) => alerts);

  describe("an alert fires by its cause", { timeout: patience(TEST_MS) }, () => {
    test.each(causes)("$what: $alerts", async ({ alerts, begin, end }) => {
      await untilNone(alerts);
      try {
        await begin();
        await untilAll(alerts);
      } finally {
        await end?.();
      }
    });
    if (ended.length > 0) test("and ends with it", () => untilNone(ended));
  });
}

/** The work is done again and again, by so many at once, from the cause's beginning to its end. */
export function repeating(
  workers: number,
  work: () => Promise<unknown>,
): Required<Pick<Cause, "begin" | "end">> {
  let isOver = false;
  let working: Promise<unknown> = Promise.resolve();
  const repeat = async () => {
    while (!isOver) await work();
  };
  return {
    begin: () => {
      working = Promise.all(Array.from({ length: workers }, repeat));
    },
    end: async () => {
      isOver = true;
      await working;
    },
  };
}
