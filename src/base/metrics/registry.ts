import * as prometheus from "prom-client";

/** prom-client measures the event loop's delay by a timer every 10 ms, which would wake an idle process for nothing. */
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

export type MetricsRegistry = ReturnType<typeof createMetricsRegistry>;

/** The type of `read`'s text in HTTP. */
export const TEXT_FORMAT = prometheus.Registry.PROMETHEUS_CONTENT_TYPE;

/**
 * A process's metrics.
 *
 * Series whose labels are all known in advance exist from the start, as 0: a rate needs a first point, and an alert
 * on what has never happened needs a series.
 */
export function createMetricsRegistry() {
  const registry = new prometheus.Registry();
  const declared: Declared[] = [];
  const preparing: (() => void | Promise<void>)[] = [];

  function declare<Label extends string>(kind: Declared["kind"], declaration: Declaration<Label>) {
    const complete = { unit: "seconds", labels: {} as Labels<Label>, ...declaration };
    declared.push({ kind, ...complete });
    const { name, help, labels } = complete;
    return { labels, config: { name, help, labelNames: labelNamesOf(labels), registers: [registry] } };
  }

  return {
    counter<Label extends string = never>(declaration: Declaration<Label>): Labelled<Label, Tally> {
      const { labels, config } = declare("counter", declaration);
      const counter = new prometheus.Counter(config);
      return seriesOf(labels, (values) => {
        const child = counter.labels(values);
        child.inc(0);
        return { add: (by) => child.inc(by) };
      });
    },
    histogram<Label extends string = never>(
      declaration: HistogramDeclaration<Label>,
    ): Labelled<Label, Distribution> {
      const { labels, config } = declare("histogram", declaration);
      const histogram = new prometheus.Histogram({ ...config, buckets: [...declaration.buckets] });
      return seriesOf(labels, (values) => {
        histogram.zero(values);
        return histogram.labels(values);
      });
    },
    gauge<Label extends string = never>(
      declaration: Declaration<Label>,
    ): Labelled<Label, Level> & { clear(): void } {
      const { config } = declare("gauge", declaration);
      const gauge = new prometheus.Gauge(config);
      // A gauge's value is unknown until measured: no series until it is set.
      const clear = () => {
        gauge.reset();
        if (config.labelNames.length === 0) gauge.remove({});
      };
      clear();
      return { of: (labels) => gauge.labels(labels), clear };
    },
    /** Adds Node's process metrics: memory, CPU, event loop, garbage collection. */
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
    /** Called and awaited before every reading, to set gauges. Must not reject. */
    onRead: (prepare: () => void | Promise<void>) => void preparing.push(prepare),
    declared: declared as readonly Declared[],
    /** Everything in Prometheus's text format. */
    read: async () => {
      await Promise.all(preparing.map((prepare) => prepare()));
      return await registry.metrics();
    },
  };
}

function labelNamesOf<Label extends string>(labels: Labels<Label>): Label[] {
  return Object.keys(labels) as Label[];
}

function seriesOf<Label extends string, Series>(
  labels: Labels<Label>,
  make: (values: LabelValues<Label>) => Series,
): Labelled<Label, Series> {
  const names = labelNamesOf(labels);
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
function knownValues<Label extends string>(labels: Labels<Label>): LabelValues<Label>[] {
  let combinations: Record<string, string>[] = [{}];
  for (const [name, values] of Object.entries<readonly string[] | null>(labels)) {
    if (values === null) return [];
    combinations = combinations.flatMap((before) => values.map((value) => ({ ...before, [name]: value })));
  }
  return combinations as LabelValues<Label>[];
}

/**
 * Every label and the values that it can have; null where they are a closed set that is kept elsewhere (error codes,
 * operations, statuses). Never an account, a host or an id: a customer must not be able to make series.
 */
type Labels<Label extends string> = Readonly<Record<Label, readonly string[] | null>>;

type LabelValues<Label extends string> = Readonly<Record<Label, string>>;

/** One metric, declared once: the operators' document derives from it, and tests compare dashboards and alerts. */
type Declaration<Label extends string> = {
  /** Ends in `_total` for counters, and in the unit where that is a base unit (`_seconds`). */
  readonly name: `sealpost_${string}`;
  /** What it means, as a sentence. */
  readonly help: string;
  /** What its value counts; absent: seconds. */
  readonly unit?: string;
  /** Absent: it has none. */
  readonly labels?: Labels<Label>;
};

type HistogramDeclaration<Label extends string> = Declaration<Label> & {
  /** Upper bounds, in the metric's unit, rising. */
  readonly buckets: readonly number[];
};

export type Declared = Required<Declaration<string>> & { readonly kind: "counter" | "gauge" | "histogram" };
