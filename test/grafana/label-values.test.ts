import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { isErrorCode, isOurFailure, NAMED_ERROR_CODES } from "../../src/base/model/error-codes.ts";
import { DELIVERY_STATUSES, END_REASONS, hasEnded, OUTCOMES } from "../../src/base/model/statuses.ts";
import { GRAFANA, readDashboards } from "../support/dashboards.ts";
import { declaredMetrics } from "../support/metrics-table.ts";
import { declaredRegistry } from "../support/sealpost-operations.ts";

const isOneOf = (values: readonly string[]) => (value: string) => values.includes(value);

/** The labels whose values are lists of the model. */
const OF_THE_MODEL: Readonly<Record<string, (value: string) => boolean>> = {
  "sealpost_attempts_total outcome": isOneOf(OUTCOMES),
  "sealpost_attempts_total error_code": (value) => value === "none" || isErrorCode(value),
  "sealpost_api_problems_total code": isOneOf(Object.keys(declaredRegistry().problems)),
  "sealpost_deliveries_ended_total status": isOneOf(DELIVERY_STATUSES.filter(hasEnded)),
  "sealpost_deliveries_ended_total reason": isOneOf(["none", ...END_REASONS]),
};

const judges = new Map(Object.entries(OF_THE_MODEL));
for (const { name, labels } of declaredMetrics()) {
  for (const [label, values] of Object.entries(labels)) {
    if (values !== null) judges.set(`${name} ${label}`, isOneOf(values));
  }
}

type Asked = { readonly where: string; readonly label: string; readonly value: string };

/** Every value of a label that a file asks a metric for: `metric{label="value"}`, of `=~` each alternative. */
function askedIn(where: string, text: string): Asked[] {
  return [...text.matchAll(/\b(sealpost_\w+)\{([^}]*)\}/g)].flatMap(([, metric = "", selector = ""]) =>
    [...selector.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"/g)].flatMap(([, label = "", values = ""]) =>
      values.split("|").map((value) => {
        const base = metric.replace(/_(?:bucket|sum|count)$/, "");
        return { where, label: `${judges.has(`${metric} ${label}`) ? metric : base} ${label}`, value };
      }),
    ),
  );
}

const asked = [
  ...readDashboards().flatMap(({ file, panels }) =>
    panels.flatMap(({ targets = [] }) => targets.flatMap(({ expr }) => askedIn(file, expr))),
  ),
  ...["alerts.yml", "alerts.test.yml"].flatMap((file) =>
    askedIn(file, readFileSync(`${GRAFANA}prometheus/${file}`, "utf8")),
  ),
].filter(({ label }) => judges.has(label));

describe("what dashboards and alerts ask for", () => {
  test("is a value that the label has", () => {
    expect(asked.filter(({ label, value }) => !judges.get(label)?.(value))).toEqual([]);
  });

  test("is looked at, and what no label has is found", () => {
    const labels = new Set(asked.map(({ label }) => label));
    for (const label of Object.keys(OF_THE_MODEL)) expect(judges.get(label)?.("no_such_value")).toBe(false);
    expect([...labels]).toEqual(
      expect.arrayContaining([
        "sealpost_attempts_total outcome",
        "sealpost_attempts_total error_code",
        "sealpost_deliveries_ended_total status",
        "sealpost_deliveries_ended_total reason",
        "sealpost_leases_returned_total why",
      ]),
    );
  });
});

test("a lease is given back for every failure of ours that can end a POST, or without one", () => {
  const declared = declaredMetrics().find(({ name }) => name === "sealpost_leases_returned_total");
  // `interrupted` is written down by the next claim: whoever had the lease has died.
  const ours = NAMED_ERROR_CODES.filter((code) => isOurFailure(code) && code !== "interrupted");
  expect(declared?.labels.why).toEqual([...ours, "not_posted"]);
});
