/** One metric, declared once: all that dashboards, alerts and the operators' document say of it comes from here. */
export type Declaration<Label extends string> = {
  /** Ends in `_total` for counters, and in the unit where that is a base unit (`_seconds`). */
  readonly name: `sealpost_${string}`;
  /** What it tells, as a sentence. */
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
