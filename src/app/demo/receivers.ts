import type { LocalCertificate } from "../local-certificate.ts";
import { type Arrival, startWebhookReceiver } from "../webhook-receiver.ts";
import { ATTEMPTS_REFUSED_WHILE_RESTARTING, type ReceiverName, receivers } from "./analyses.ts";

/** What the receivers got of one delivery. */
export type ReceivedDelivery = {
  readonly analysisId: string;
  /** POSTs with a valid signature. */
  readonly verified: number;
  /** POSTs answered with a 2xx. */
  readonly accepted: number;
  readonly body: Buffer;
};

export type DemoReceivers = {
  readonly port: number;
  url(name: ReceiverName): string;
  /** From now on signatures with this secret are valid. */
  trust(secret: string): void;
  /** From now on the broken one accepts. */
  repair(): void;
  /** By delivery id. */
  readonly received: ReadonlyMap<string, ReceivedDelivery>;
  /** Number of POSTs refused because their signature was not valid. */
  rejectedCount(): number;
  close(): Promise<void>;
};

/** One HTTPS server on loopback with three host names, each of which behaves differently. */
export async function startDemoReceivers(options: {
  readonly certificate: LocalCertificate;
  /** Unix time in milliseconds. */
  readonly now: () => number;
}): Promise<DemoReceivers> {
  const { certificate, now } = options;
  const secrets: string[] = [];
  const received = new Map<string, ReceivedDelivery>();
  let isRepaired = false;
  let rejectedCount = 0;

  function onArrival({ event, body, hostname }: Arrival): number {
    if (event === null) {
      rejectedCount += 1;
      return 400;
    }
    const previous = received.get(event.id) ?? { verified: 0, accepted: 0 };
    const verified = previous.verified + 1;
    const status = statusOf(hostname, verified);
    const accepted = previous.accepted + (status < 300 ? 1 : 0);
    received.set(event.id, { analysisId: event.data.id, verified, accepted, body });
    return status;
  }

  function statusOf(hostname: string, verified: number): number {
    if (hostname === receivers.broken.hostname) return isRepaired ? 204 : 500;
    const isRestarting = hostname === receivers.restarting.hostname;
    return isRestarting && verified <= ATTEMPTS_REFUSED_WHILE_RESTARTING ? 503 : 204;
  }

  const { port, close } = await startWebhookReceiver({
    host: "127.0.0.1",
    port: 0,
    tls: certificate,
    secrets,
    toleranceSeconds: 300,
    now,
    onArrival,
  });
  return {
    port,
    url: (name) => `https://${receivers[name].hostname}:${port}/webhooks`,
    trust: (secret) => {
      secrets.push(secret);
    },
    repair: () => {
      isRepaired = true;
    },
    received,
    rejectedCount: () => rejectedCount,
    close,
  };
}
