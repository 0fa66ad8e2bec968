import { textTable } from "../app/output.ts";
import { receivers, rolledBackAnalysis } from "./analyses.ts";
import type { ApiDelivery } from "./api-client.ts";
import type { DemoDelivery } from "./checks.ts";
import type { DemoReceivers } from "./receivers.ts";
import type { ScenarioResult } from "./scenario.ts";

const HEAD = ["analysis", "receiver", "first run", "final", "POSTs", "signatures"] as const;

/** What happened to each analysis, as a table. */
export function summaryTable({ deliveries, runDelivery, environment }: ScenarioResult): string {
  const demoReceivers = environment.receivers;
  const rows = deliveries.map(({ analysis, deliveryId, first, last }) => {
    const received = demoReceivers.received.get(deliveryId);
    return [
      analysis.id,
      receivers[analysis.receiver].hostname,
      first.status,
      last.run > first.run ? `${last.status} by replay` : last.status,
      `${last.attempts_count}`,
      `${received?.verified ?? 0} of ${last.attempts_count} valid`,
    ];
  });
  const rolledBack = [
    rolledBackAnalysis.id,
    receivers[rolledBackAnalysis.receiver].hostname,
    "–",
    "never sent",
    "0",
    "–",
  ];
  return textTable(HEAD, [
    ...rows,
    rolledBack,
    ...(runDelivery === null ? [] : [runRow(runDelivery, demoReceivers)]),
  ]);
}

function runRow({ id, status, attempts_count }: ApiDelivery, { received }: DemoReceivers): string[] {
  const verified = received.get(id)?.verified ?? 0;
  const valid = `${verified} of ${attempts_count} valid`;
  return ["workflow’s run", receivers.steady.hostname, status, status, `${attempts_count}`, valid];
}

/** The same as JSON fields. */
export function summaryFields({ analysis, deliveryId, first, last }: DemoDelivery) {
  return {
    analysis_id: analysis.id,
    delivery_id: deliveryId,
    first_run: first.status,
    status: last.status,
    runs: last.run,
    attempts_count: last.attempts_count,
  };
}
