import { setTimeout as delay } from "node:timers/promises";
import { explainErrorCode } from "../model/error-codes.ts";
import { hasEnded } from "../model/statuses.ts";
import type { DemoApi, ShownAttempt, ShownDelivery } from "./demo-api.ts";
import type { Words } from "./words.ts";

const LOOK_EVERY_MS = 100;
const ATTEMPTS_OF_A_RUN = 8;

/** Shows every attempt once, as soon as the delivery log has it. */
export type Watch = {
  /** Until none of these deliveries has an attempt to come. Returns them as they are then. */
  untilEnded(deliveryIds: readonly string[]): Promise<readonly ShownDelivery[]>;
};

type Seen = {
  readonly delivery: ShownDelivery;
  readonly attempt: ShownAttempt;
  readonly before?: ShownAttempt;
};

/** @param receiverOf the name of the receiver that an analysis goes to */
export function createWatch(
  api: DemoApi,
  words: Words,
  receiverOf: (analysisId: string) => string,
  signal: AbortSignal,
): Watch {
  const shown = new Map<string, number>();

  /** Attempts that have ended since the last look, of all deliveries, in the order of their ends. */
  async function news(deliveries: readonly ShownDelivery[]): Promise<readonly Seen[]> {
    const seen: Seen[] = [];
    for (const delivery of deliveries) {
      const count = shown.get(delivery.id) ?? 0;
      if (delivery.attempts_count <= count) continue;
      const attempts = await api.attempts(delivery.id);
      shown.set(delivery.id, attempts.length);
      attempts.slice(count).forEach((attempt, index) => {
        const before = attempts[count + index - 1];
        seen.push({ delivery, attempt, ...(before?.run === attempt.run ? { before } : {}) });
      });
    }
    return seen.sort((one, other) => Date.parse(one.attempt.ended_at) - Date.parse(other.attempt.ended_at));
  }

  function show({ delivery, attempt, before }: Seen): void {
    const { id: delivery_id, analysis_id } = delivery;
    const { run, number, outcome, status_code, error_code } = attempt;
    const hasArrived = outcome === "succeeded";
    const mark = hasArrived ? words.good("✓") : words.bad("✗");
    const later =
      before === undefined ? "" : `, ${secondsBetween(before.ended_at, attempt.started_at)} later`;
    const which = `(${run > 1 ? "replay, " : ""}attempt ${number} of ${ATTEMPTS_OF_A_RUN}${later})`;
    const fields = { analysis_id, delivery_id, run, number, outcome, status_code, error_code };
    const text = `${mark} ${analysis_id.padEnd(14)}  ${outcomeInWords(receiverOf(analysis_id), attempt)}`;
    words.line("attempt", fields, `${text}  ${words.dim(which)}`, Date.parse(attempt.ended_at));
    if (hasArrived || number < ATTEMPTS_OF_A_RUN) return;
    const end = `  ${analysis_id.padEnd(14)}  abandoned: that was the last attempt; it can be replayed for 7 days`;
    words.line("abandoned", { analysis_id, delivery_id, run }, end, Date.parse(attempt.ended_at));
  }

  return {
    untilEnded: async (deliveryIds) => {
      for (;;) {
        const deliveries = (await api.deliveries()).filter(({ id }) => deliveryIds.includes(id));
        for (const seen of await news(deliveries)) show(seen);
        if (deliveries.length === deliveryIds.length && deliveries.every(({ status }) => hasEnded(status)))
          return deliveries;
        await delay(LOOK_EVERY_MS, undefined, { signal });
      }
    },
  };
}

function outcomeInWords(receiver: string, { outcome, status_code, error_code }: ShownAttempt): string {
  if (outcome === "succeeded") return `delivered: ${receiver} answered ${status_code}`;
  if (status_code !== null) return `failed: ${receiver} answered ${status_code}`;
  return `failed: ${receiver}. ${explainErrorCode(error_code ?? "").message}`;
}

function secondsBetween(from: string, to: string): string {
  return `${((Date.parse(to) - Date.parse(from)) / 1_000).toFixed(2)} s`;
}
