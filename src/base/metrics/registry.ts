import * as prometheus from "prom-client";

/**
 * What prom-client tells of the event loop's delay comes from a timer every 10 ms, which alone would wake an idle
 * process a hundred times a second. How busy the loop is costs nothing to know, and says more.
 */
const OF_DELAY_TIMER = ["min", "max", "mean", "stddev", "p50", "p90", "p99"].map(
  (what) => `nodejs_eventloop_lag_${what}_seconds`,
);
const NEVER_MS = 2 ** 31 - 1;

/** Series per metric; ours need less than a tenth. Beyond it, values are counted as `other`. */
const SERIES_MAX = 1_000;

/** Gauges with names of counters, which `promtool check metrics` refuses: the sums of those by `type`, which stay. */
const MISNAMED = ["handles", "requests", "resources"].map((what) => `nodejs_active_${what}_total`);

export type Tally = { add(by?: number): void };
export type Distribution = { observe(value: number): void };
export type Level = { set(value: number): void };

/** A metric's series by their labels, each created once: a hot path looks its own up at the start and keeps it. */
export type Labelled<Label extends string, Series> = { of(labels: LabelValues<Label>): Series };

export type MetricsRegistry = {
  counter<Label extends string>(declaration: Declaration<Label>): Labelled<Label, Tally>;
  histogram<Label extends string>(declaration: HistogramDeclaration<Label>): Labelled<Label, Distribution>;
  gauge<Label extends string>(declaration: Declaration<Label>): Labelled<Label, Level> & { clear(): void };
  /** Adds Node's process metrics: memory, CPU, event loop, garbage collection. */
  addProcess(): void;
  /** Called and awaited before every reading, to set gauges. Must not reject. */
  onRead(prepare: () => void | Promise<void>): void;
  readonly declared: readonly Declared[];
  /** Everything in Prometheus's text format. */
  read(): Promise<string>;
};

/** The type of `read`'s text in HTTP. */
export const TEXT_FORMAT = prometheus.Registry.PROMETHEUS_CONTENT_TYPE;

/**
 * A process's metrics.
 *
 * Series whose labels are all known in advance exist from the start, as 0: a rate needs a first point, and an alert
 * on what has never happened needs a series.
 */
export function createMetricsRegistry(): MetricsRegistry {
  const registry = new prometheus.Registry();
  const declared: Declared[] = [];
  const preparing: (() => void | Promise<void>)[] = [];

  const configOf = <Label extends string>({ name, help, labels }: Declaration<Label>) => ({
    name,
    help,
    labelNames: Object.keys(labels) as Label[],
    registers: [registry],
  });

  return {
    counter: (declaration) => {
      declared.push({ kind: "counter", ...declaration });
      const counter = new prometheus.Counter(configOf(declaration));
      return seriesOf(declaration, (labels) => {
        const child = counter.labels(labels);
        child.inc(0);
        return { add: (by) => child.inc(by) };
      });
    },
    histogram: (declaration) => {
      declared.push({ kind: "histogram", ...declaration });
      const buckets = [...declaration.buckets];
      const histogram = new prometheus.Histogram({ ...configOf(declaration), buckets });
      return seriesOf(declaration, (labels) => {
        histogram.zero(labels);
        return histogram.labels(labels);
      });
    },
    gauge: (declaration) => {
      declared.push({ kind: "gauge", ...declaration });
      const gauge = new prometheus.Gauge(configOf(declaration));
      // A gauge's value is unknown until measured: no series until it is set.
      const clear = () => {
        gauge.reset();
        if (Object.keys(declaration.labels).length === 0) gauge.remove({});
      };
      clear();
      return { of: (labels) => gauge.labels(labels), clear };
    },
    addProcess: () => {
      prometheus.collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
      for (const name of [...MISNAMED, ...OF_DELAY_TIMER]) registry.removeSingleMetric(name);
      let before = performance.eventLoopUtilization();
      new prometheus.Gauge({
        name: "nodejs_eventloop_utilization_ratio",
        help: "Share of the time since the last reading in which the event loop was busy, from 0 to 1.",
        registers: [registry],
        collect() {
          const now = performance.eventLoopUtilization();
          this.set(performance.eventLoopUtilization(now, before).utilization);
          before = now;
        },
      });
    },
    onRead: (prepare) => preparing.push(prepare),
    declared,
    read: async () => {
      await Promise.all(preparing.map((prepare) => prepare()));
      return await registry.metrics();
    },
  };
}

function seriesOf<Label extends string, Series>(
  { labels }: Declaration<Label>,
  make: (values: LabelValues<Label>) => Series,
): Labelled<Label, Series> {
  const names = Object.keys(labels) as Label[];
  const series = new Map<string, Series>();
  const of = (values: LabelValues<Label>): Series => {
    const key = names.map((name) => values[name]).join("\n");
    const known = series.get(key);
    if (known !== undefined) return known;
    const isBeyond = series.size >= SERIES_MAX;
    const other = Object.fromEntries(names.map((name) => [name, "other"])) as LabelValues<Label>;
    const made = make(isBeyond ? other : values);
    if (!isBeyond) series.set(key, made);
    return made;
  };
  for (const values of knownValues(labels)) of(values);
  return { of };
}

/** Every combination of the labels' values; none if a label's values are defined elsewhere. */
function knownValues<Label extends string>(labels: Declaration<Label>["labels"]): LabelValues<Label>[] {
  let combinations: Record<string, string>[] = [{}];
  for (const [name, values] of Object.entries<readonly string[] | null>(labels)) {
    if (values === null) return [];
    combinations = combinations.flatMap((before) => values.map((value) => ({ ...before, [name]: value })));
  }
  return combinations as LabelValues<Label>[];
}

/**
 * One metric, declared once: the operators' document derives from this, and tests compare dashboards and alerts with
 * it.
 */
export type Declaration<Label extends string> = {
  /** Ends in `_total` for counters, and in the unit where that is a base unit (`_seconds`). */
  readonly name: `sealpost_${string}`;
  /** What it means, as a sentence. */
  readonly help: string;
  /** What its value counts. */
  readonly unit: string;
  /**
   * Every label and the values that it can have; null where they are a closed set that is kept elsewhere (error codes,
   * operations, statuses). Never an account, a host or an id: a customer must not be able to make series.
   */
  readonly labels: Readonly<Record<Label, readonly string[] | null>>;
};

export type HistogramDeclaration<Label extends string> = Declaration<Label> & {
  /** Upper bounds, in the metric's unit, rising. */
  readonly buckets: readonly number[];
};

export type MetricKind = "counter" | "gauge" | "histogram";

export type Declared = Declaration<string> & { readonly kind: MetricKind };

export type LabelValues<Label extends string> = Readonly<Record<Label, string>>;
