// Reads the dashboards and alerts for tests.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const GRAFANA = fileURLToPath(new URL("../../grafana/", import.meta.url));

export type Panel = {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly {
    readonly refId: string;
    readonly expr: string;
    readonly legendFormat: string;
  }[];
};

export type Dashboard = {
  readonly file: string;
  readonly uid: string;
  readonly title: string;
  readonly description: string;
  readonly panels: readonly Panel[];
};

export function readDashboards(): readonly Dashboard[] {
  const folder = `${GRAFANA}dashboards/`;
  return readdirSync(folder).map((file) => ({
    file,
    ...(JSON.parse(readFileSync(folder + file, "utf8")) as Omit<Dashboard, "file">),
  }));
}

/** An expression with Grafana's variables filled in; scrapes are one second apart here. */
export function filledIn(expression: string): string {
  return expression.replaceAll("$__rate_interval", "15s").replaceAll("$__range", "5m");
}

/** The metrics in an expression, and the labels it uses. */
export type Named = { readonly metric: string; readonly labels: readonly string[] };

/** Other metrics in a scrape: Prometheus's own, and prom-client's process metrics. */
const METRIC = /\b((?:sealpost|nodejs|process)_[a-z0-9_]+|sealpost:[a-z0-9_:]+|up)\b(?:\{([^}]*)\})?/g;

/** The metrics of an expression with the labels of their selectors, including `by (…)`. */
export function namedIn(expression: string): readonly Named[] {
  const groupings = [...expression.matchAll(/\bby\s*\(([^)]*)\)/g)].flatMap(([, list = ""]) =>
    list.split(",").map((label) => label.trim()),
  );
  return [...expression.matchAll(METRIC)].map(([, metric = "", selector = ""]) => ({
    metric,
    labels: [...selectorLabels(selector), ...groupings],
  }));
}

function selectorLabels(selector: string): string[] {
  return [...selector.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label = ""]) => label);
}
