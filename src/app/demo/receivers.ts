import { createLocalCertificate } from "../local-certificate.ts";
import { type Arrival, startWebhookReceiver } from "../webhook-receiver.ts";
import type { DemoOutput } from "./output.ts";

/** The demo's receivers, under names that resolve to this machine, and what becomes of deliveries to them. */
export const RECEIVERS = {
  steady: {
    hostname: "steady.localhost",
    behavior: "accepts every delivery; the account's endpoint",
    attempts: 1,
    endsAs: "succeeded",
  },
  restarting: {
    hostname: "restarting.localhost",
    behavior: "answers 503 to the first two attempts of each delivery",
    attempts: 3,
    endsAs: "succeeded",
  },
  broken: {
    hostname: "broken.localhost",
    behavior: "answers 500 to everything until it is repaired",
    attempts: 8,
    endsAs: "abandoned",
  },
} as const;

export type ReceiverName = keyof typeof RECEIVERS;

/** For ids of analyses and what stands in their place. */
export const ID_COLUMNS = 14;

/** What the receivers got of one delivery. */
type ReceivedDelivery = {
  readonly analysisId: string;
  /** POSTs with a valid signature. */
  readonly verified: number;
  /** POSTs answered with a 2xx. */
  readonly accepted: number;
  /** Of the last POST. */
  readonly body: Buffer;
  /** Milliseconds since any fixed time. */
  readonly atMs: number;
};

export type DemoReceivers = Awaited<ReturnType<typeof startDemoReceivers>>;

/**
 * One HTTPS server on loopback with three host names, each of which behaves differently. Prints what it is sent, until
 * `signal` aborts: then the demo has said its last word.
 */
export async function startDemoReceivers(now: () => number, output: DemoOutput, signal: AbortSignal) {
  const hostnames = Object.values(RECEIVERS).map(({ hostname }) => hostname);
  const tls = createLocalCertificate(hostnames, now());
  const secrets: string[] = [];
  const received = new Map<string, ReceivedDelivery>();
  let isRepaired = false;
  let rejectedCount = 0;

  function onArrival({ event, body, hostname }: Arrival): number {
    if (event === null) {
      rejectedCount += 1;
      return 400;
    }
    const { id: delivery_id, data } = event;
    const previous = received.get(delivery_id);
    const number = (previous?.verified ?? 0) + 1;
    const status_code = statusOf(hostname, number);
    const isAccepted = status_code === 204;
    const accepted = (previous?.accepted ?? 0) + Number(isAccepted);
    const atMs = performance.now();
    received.set(delivery_id, { analysisId: data.id, verified: number, accepted, body, atMs });
    if (signal.aborted) return status_code;
    const after = previous === undefined ? "" : `, ${((atMs - previous.atMs) / 1_000).toFixed(2)} s later`;
    output.result(
      "attempt",
      { analysis_id: data.id, delivery_id, number, status_code },
      isAccepted,
      `${data.id.padEnd(ID_COLUMNS)}  ${hostname} answered ${status_code}  (POST ${number}${after})`,
    );
    return status_code;
  }

  function statusOf(hostname: string, number: number): number {
    if (hostname === RECEIVERS.broken.hostname && !isRepaired) return 500;
    const { restarting } = RECEIVERS;
    return hostname === restarting.hostname && number < restarting.attempts ? 503 : 204;
  }

  const { port, close } = await startWebhookReceiver({
    host: "127.0.0.1",
    port: 0,
    tls,
    secrets,
    toleranceSeconds: 300,
    now,
    onArrival,
  });
  return {
    port,
    /** Their certificate, which signs itself. */
    certPem: tls.cert,
    url: (name: ReceiverName) => `https://${RECEIVERS[name].hostname}:${port}/webhooks`,
    /** From now on signatures with this secret are valid. */
    trust: (secret: string) => void secrets.push(secret),
    /** From now on the broken one accepts. */
    repair: () => {
      isRepaired = true;
    },
    /** By delivery id. */
    received: received as ReadonlyMap<string, ReceivedDelivery>,
    /** Number of POSTs refused because their signature was not valid. */
    rejectedCount: () => rejectedCount,
    close,
  };
}
