import type { Breach, Rule, SourceFile } from "./source-files.ts";

/** What a scrape adds to every series, and what a histogram does. */
const addedLabels = ["job", "instance", "le"];

type Metric = { readonly name: string; readonly labels: readonly string[]; readonly path: string };

/**
 * Dashboards and alerts ask for what src/base/metrics/ declares, with the same labels; and each metric is there for
 * somebody who acts on it: an alert, the runbook, or a question in docs/operating.md. A panel is not a reason.
 */
export const metrics: Rule = {
  name: "metrics",
  find: (files) => {
    const declared = new Map(files.flatMap(declaredIn).map((metric) => [metric.name, metric]));
    const shown = files.filter(({ path }) => /^grafana\/.+\.(?:json|yml)$/.test(path));
    const acting = files.filter(({ path }) => ACTED_ON.includes(path));
    return [...shown.flatMap((file) => wronglyNamed(file, declared)), ...neverActedOn(declared, acting)];
  },
};

function declaredIn({ path, text }: SourceFile): Metric[] {
  if (!path.startsWith("src/base/metrics/")) return [];
  const declarations = /registry\.(counter|gauge|histogram)\(\{\s*name: "(\w+)",([\s\S]*?)\n *\}\)/g;
  return [...text.matchAll(declarations)].flatMap(([, kind, name = "", declared = ""]) => {
    const body = /labels: \{([^}]*)\}/.exec(declared)?.[1] ?? "";
    const labels = [...body.matchAll(/(\w+): /g)].map(([, label = ""]) => label);
    const names = kind === "histogram" ? ["bucket", "sum", "count"].map((end) => `${name}_${end}`) : [name];
    return names.map((one) => ({ name: one, labels, path }));
  });
}

function wronglyNamed(file: SourceFile, declared: ReadonlyMap<string, Metric>): Breach[] {
  const text = file.text.replaceAll('\\"', '"');
  return [...text.matchAll(/\b(sealpost_\w+)(?:\{([^}]*)\})?/g)].flatMap(([, name = "", selector = ""]) => {
    const metric = declared.get(name);
    if (!metric)
      return [breach(file.path, `names ${name}: declare it in src/base/metrics/, or correct the name`)];
    const asked = [...selector.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"/g)].map(([, label = ""]) => label);
    return asked
      .filter((label) => !metric.labels.includes(label) && !addedLabels.includes(label))
      .map((label) => breach(file.path, `asks ${name} for ${label}: it has ${metric.labels.join(", ")}`));
  });
}

const ACTED_ON = ["grafana/prometheus/alerts.yml", "docs/runbook.md", "docs/operating.md"];

/** Measured for nobody. One part of a histogram is enough. */
function neverActedOn(declared: ReadonlyMap<string, Metric>, acting: readonly SourceFile[]): Breach[] {
  const names = new Set(acting.flatMap(({ text }) => text.match(/\bsealpost_\w+/g) ?? []));
  const seen = new Set([...names].map(baseOf));
  return [...new Set([...declared.keys()].map(baseOf))]
    .filter((base) => !seen.has(base))
    .map((base) => {
      const path = [...declared.values()].find(({ name }) => baseOf(name) === base)?.path ?? "";
      return breach(
        path,
        `declares ${base}, which nobody acts on: name it in ${ACTED_ON.join(", ")}, or measure it no more`,
      );
    });
}

function baseOf(name: string): string {
  return name.replace(/_(?:bucket|sum|count)$/, "");
}

function breach(path: string, message: string): Breach {
  return { rule: "metrics", path, message };
}
