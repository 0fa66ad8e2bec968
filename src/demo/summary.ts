import { textTable } from "../app/terminal-text.ts";
import { receivers, rolledBack } from "./cast.ts";
import type { DemoReceivers } from "./demo-receivers.ts";
import type { Played } from "./review.ts";

const HEAD = ["analysis", "receiver", "first run", "in the end", "POSTs", "signatures"] as const;

/** What became of each analysis, as a table. */
export function summaryTable(played: readonly Played[], demoReceivers: DemoReceivers): string {
  const rows = played.map(({ scene, deliveryId, first, last }) => {
    const received = demoReceivers.received.get(deliveryId);
    return [
      scene.analysisId,
      receivers[scene.receiver].hostname,
      first.status,
      last.run > first.run ? `${last.status} by replay` : last.status,
      `${last.attempts_count}`,
      `${received?.verified ?? 0} of ${last.attempts_count} right`,
    ];
  });
  const nothing = [
    rolledBack.analysisId,
    receivers[rolledBack.receiver].hostname,
    "–",
    "never sent",
    "0",
    "–",
  ];
  return textTable(HEAD, [...rows, nothing]);
}

/** The same for programs. */
export function summaryFields({ scene, deliveryId, first, last }: Played) {
  return {
    analysis_id: scene.analysisId,
    delivery_id: deliveryId,
    first_run: first.status,
    status: last.status,
    runs: last.run,
    attempts_count: last.attempts_count,
  };
}
