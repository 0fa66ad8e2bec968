import { rolledBack, type Scene } from "./cast.ts";
import type { DemoApi, ShownDelivery } from "./demo-api.ts";
import type { DemoReceivers } from "./demo-receivers.ts";

/** A published scene with what became of it. */
export type Played = {
  readonly scene: Scene;
  readonly deliveryId: string;
  /** At the end of the first run. */
  readonly first: ShownDelivery;
  /** At the end of everything; another run when it was replayed. */
  readonly last: ShownDelivery;
};

/** What did not go as it should, in sentences; empty when everything did. */
export async function review(
  played: readonly Played[],
  receivers: DemoReceivers,
  api: DemoApi,
): Promise<readonly string[]> {
  const faults = played.flatMap((one) => [...faultsInLog(one), ...faultsAtReceiver(one, receivers)]);
  for (const { scene } of played) faults.push(...(await faultsInPolling(scene, api)));
  return [...faults, ...(await faultsInRollback(receivers, api))];
}

function faultsInLog({ scene, first, last }: Played): string[] {
  const faults: string[] = [];
  const { analysisId, endsAs, attempts } = scene;
  if (first.status !== endsAs || first.attempts_count !== attempts) {
    faults.push(
      `${analysisId} was ${first.status} after ${first.attempts_count} attempts, not ${endsAs} after ${attempts}.`,
    );
  }
  if (last.status !== "succeeded") faults.push(`${analysisId} is ${last.status} in the end, not succeeded.`);
  return faults;
}

function faultsAtReceiver({ scene, deliveryId, last }: Played, receivers: DemoReceivers): string[] {
  const received = receivers.received.get(deliveryId);
  if (received === undefined) return [`The receiver has never seen ${scene.analysisId}.`];
  const faults: string[] = [];
  if (received.verified !== last.attempts_count) {
    faults.push(
      `The receiver has verified ${received.verified} POSTs of ${scene.analysisId}, and the log has ` +
        `${last.attempts_count} attempts.`,
    );
  }
  if (received.accepted !== 1) {
    faults.push(`The receiver has accepted ${scene.analysisId} ${received.accepted} times, not once.`);
  }
  if (!received.body.includes(`"data":${scene.analysis}}`)) {
    faults.push(`What arrived of ${scene.analysisId} is not byte for byte what was published.`);
  }
  return faults;
}

async function faultsInPolling({ analysisId, analysis }: Scene, api: DemoApi): Promise<string[]> {
  const { status, text } = await api.analysis(analysisId);
  if (status === 200 && text === analysis) return [];
  return [`Polling for ${analysisId} does not give what was published (status ${status}).`];
}

async function faultsInRollback(receivers: DemoReceivers, api: DemoApi): Promise<string[]> {
  const { analysisId } = rolledBack;
  const faults: string[] = [];
  const hasArrived = [...receivers.received.values()].some((one) => one.analysisId === analysisId);
  if (hasArrived) faults.push(`${analysisId} has arrived, although its transaction was rolled back.`);
  const { status } = await api.analysis(analysisId);
  if (status !== 404)
    faults.push(`${analysisId} can be read (status ${status}), although it was rolled back.`);
  return faults;
}
