/** One number that a case measured. */
export type Figure = {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly goal?: Goal;
};

/** From the project's goals; what is not met is reported like what is. */
export type Goal = { readonly atLeast: number } | { readonly atMost: number };

export type BenchCase<Context> = {
  readonly name: string;
  /** What it measures, in one or two sentences. */
  readonly says: string;
  readonly run: (bench: Context, tell: (line: string) => void) => Promise<readonly Figure[]>;
};

export type CaseReport = {
  readonly name: string;
  readonly says: string;
  readonly figures: readonly Figure[];
};

/** Null: there is no goal, or the figure could not be measured here. */
export function isMet({ value, goal }: Figure): boolean | null {
  if (goal === undefined || Number.isNaN(value)) return null;
  return "atLeast" in goal ? value >= goal.atLeast : value <= goal.atMost;
}

/** A case as lines for people. */
export function describeReport({ name, says, figures }: CaseReport): string {
  const width = Math.max(...figures.map((figure) => figure.name.length));
  const lines = figures.map((figure) => {
    const value = `${formatNumber(figure.value)} ${figure.unit}`.trim();
    return `  ${figure.name.padEnd(width)}  ${value.padEnd(22)}${describeGoal(figure)}`.trimEnd();
  });
  return [`${name}: ${says}`, ...lines].join("\n");
}

function describeGoal(figure: Figure): string {
  const { goal } = figure;
  if (goal === undefined || isMet(figure) === null) return "";
  const wanted =
    "atLeast" in goal ? `at least ${formatNumber(goal.atLeast)}` : `at most ${formatNumber(goal.atMost)}`;
  return `${isMet(figure) ? "met" : "MISSED"} (goal: ${wanted})`;
}

/** Three digits that count, whole numbers above a hundred. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** The one in the middle; of an even number, the upper of the two. NaN for none. */
export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

/** The value below which the given share of all values lies; `share` in (0, 1). NaN for none. */
export function percentile(values: readonly number[] | Float64Array, share: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** Between moments from one to another, which count themselves. Milliseconds. */
export function longestPauseMs(atMs: Float64Array, fromMs: number, toMs: number): number {
  const within = [fromMs, ...atMs.filter((moment) => moment >= fromMs && moment <= toMs).sort(), toMs];
  return within.reduce(
    (longest, moment, index) => Math.max(longest, moment - (within[index - 1] ?? moment)),
    0,
  );
}
