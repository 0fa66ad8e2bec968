import { textTable } from "../app/output.ts";
import { receivers, rolledBackAnalysis } from "./analyses.ts";
import type { DemoDelivery } from "./checks.ts";
import type { DemoReceivers } from "./receivers.ts";

const HEAD = ["analysis", "receiver", "first run", "final", "POSTs", "signatures"] as const;

/** What happened to each analysis, as a table. */
export function summaryTable(deliveries: readonly DemoDelivery[], demoReceivers: DemoReceivers): string {
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
  return textTable(HEAD, [...rows, rolledBack]);
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
