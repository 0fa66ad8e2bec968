import { equal, ok } from "node:assert/strict";
import type { Chance } from "../../simulation/chance.ts";
import { patience } from "../../support/time-limits.ts";
import type { Verdict } from "./checker.ts";
import { Cluster, type ClusterOptions } from "./cluster.ts";

/** Where a scenario is played, and how thoroughly. */
export type Place = {
  /** quick: a few seconds, in `npm run test:all`; long: as the figures are promised, in `npm run faults`. */
  readonly scale: "quick" | "long";
  /** How long a fault stays that has no end of its own, and that long only where scale is long. */
  readonly minutes: number;
  readonly chance: Chance;
  /** A migrated database of its own; it goes with the place. */
  readonly newDatabase: () => Promise<{ readonly url: string }>;
};

/** What is printed: counts, and durations in milliseconds by their names. */
export type Figures = Record<string, number | string | null>;

/** One fault and what has to become of it. Rejects when that does not happen. */
export type Scenario = {
  readonly name: string;
  /** The fault, in words. */
  readonly fault: string;
  readonly play: (place: Place) => Promise<Figures>;
};

/** Plays on a cluster of its own with a database of the place, unless one is given, and takes it down afterwards. */
export async function withCluster<T>(
  place: Place,
  options: Partial<ClusterOptions>,
  play: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const databaseUrl = options.databaseUrl ?? (await place.newDatabase()).url;
  const cluster = await Cluster.start({ ...options, databaseUrl });
  try {
    return await play(cluster);
  } catch (error) {
    throw new Error(`${String(error)}\n${cluster.troubles()}`, { cause: error });
  } finally {
    await cluster.close();
  }
}

/** What must hold whatever was broken. */
export function expectSafe(verdict: Verdict): void {
  const { lost, unexpected, doubled, forged, imagined, repeated, complaints } = verdict;
  const wrong = { lost, unexpected, doubled, forged, imagined, repeated };
  ok(
    lost + unexpected + doubled + forged + imagined + repeated === 0,
    `${JSON.stringify(wrong)}\n${complaints.join("\n")}`,
  );
  equal(verdict.acknowledged, verdict.published);
}

export function expectAtMost(value: number | null, max: number, what: string): void {
  ok(value !== null && value <= max, `${what} is ${value}, more than ${max}`);
}

/** The counts of a verdict that every scenario prints. */
export function countsOf(verdict: Verdict): Figures {
  const { published, lost, unexpected, duplicated, recovered, succeeded, attempts, interrupted, unanswered } =
    verdict;
  const abandoned = Object.values(verdict.abandoned).reduce((sum, n) => sum + n, 0);
  return {
    published,
    lost,
    unexpected,
    duplicated,
    recovered,
    succeeded,
    abandoned,
    attempts,
    interrupted,
    unanswered,
  };
}

/** The value below which 99 of 100 are; null when there is none. */
export function p99(values: readonly number[]): number | null {
  return quantile(values, 0.99);
}

/** The value below which `share` of them are, 1: the largest; null when there is none. */
export function quantile(values: readonly number[], share: number): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? null;
}

export const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Resolves when it is so; rejects when it is not so in time. */
export async function until(isSo: () => boolean | Promise<boolean>, timeoutMs = 30_000): Promise<void> {
  const startedAt = performance.now();
  while (!(await isSo())) {
    if (performance.now() - startedAt > patience(timeoutMs)) {
      throw new Error(`not so after ${patience(timeoutMs)} ms: ${isSo}`);
    }
    await wait(20);
  }
}
