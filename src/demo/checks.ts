import { type DemoAnalysis, rolledBackAnalysis } from "./analyses.ts";
import type { ApiClient, ApiDelivery } from "./api-client.ts";
import type { DemoReceivers } from "./receivers.ts";

/** A published analysis and its delivery. */
export type DemoDelivery = {
  readonly analysis: DemoAnalysis;
  readonly deliveryId: string;
  /** After the first run. */
  readonly first: ApiDelivery;
  /** At the end; another run if it was replayed. */
  readonly last: ApiDelivery;
};

/** Compares what happened with what was expected. Returns a sentence for each difference. */
export async function findFaults(
  deliveries: readonly DemoDelivery[],
  receivers: DemoReceivers,
  api: ApiClient,
): Promise<readonly string[]> {
  const faults = deliveries.flatMap((one) => [...faultsInLog(one), ...faultsAtReceiver(one, receivers)]);
  for (const { analysis } of deliveries) faults.push(...(await faultsInPolling(analysis, api)));
  return [...faults, ...(await faultsInRollback(receivers, api))];
}

function faultsInLog({ analysis, first, last }: DemoDelivery): string[] {
  const faults: string[] = [];
  const { id, endsAs, attempts } = analysis;
  if (first.status !== endsAs || first.attempts_count !== attempts) {
    faults.push(
      `${id} was ${first.status} after ${first.attempts_count} attempts, not ${endsAs} after ${attempts}.`,
    );
  }
  if (last.status !== "succeeded") faults.push(`${id} is ${last.status} in the end, not succeeded.`);
  return faults;
}

function faultsAtReceiver({ analysis, deliveryId, last }: DemoDelivery, receivers: DemoReceivers): string[] {
  const received = receivers.received.get(deliveryId);
  if (received === undefined) return [`The receiver never got ${analysis.id}.`];
  const faults: string[] = [];
  if (received.verified !== last.attempts_count) {
    faults.push(
      `The receiver verified ${received.verified} POSTs of ${analysis.id}, but the log has ` +
        `${last.attempts_count} attempts.`,
    );
  }
  if (received.accepted !== 1) {
    faults.push(`The receiver accepted ${analysis.id} ${received.accepted} times, not once.`);
  }
  if (!received.body.includes(`"data":${analysis.text}}`)) {
    faults.push(`The webhook of ${analysis.id} does not contain exactly the published bytes.`);
  }
  return faults;
}

async function faultsInPolling({ id, text: published }: DemoAnalysis, api: ApiClient): Promise<string[]> {
  const { status, text } = await api.analysis(id);
  if (status === 200 && text === published) return [];
  return [`GET /v1/analyses/${id} does not return what was published (status ${status}).`];
}

async function faultsInRollback(receivers: DemoReceivers, api: ApiClient): Promise<string[]> {
  const { id } = rolledBackAnalysis;
  const faults: string[] = [];
  const hasArrived = [...receivers.received.values()].some((one) => one.analysisId === id);
  if (hasArrived) faults.push(`${id} was delivered although its transaction was rolled back.`);
  const { status } = await api.analysis(id);
  if (status !== 404) faults.push(`${id} can be read (status ${status}) although it was rolled back.`);
  return faults;
}
