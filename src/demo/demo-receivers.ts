import type { CertificateAuthority, CertificateRequest } from "../app/certificate-authority.ts";
import { type Arrival, startWebhookReceiver } from "../app/webhook-receiver.ts";
import { ATTEMPTS_REFUSED_WHILE_RESTARTING, type ReceiverName, receivers } from "./cast.ts";

/** What the three receivers have seen of one delivery. */
export type DemoArrival = {
  readonly analysisId: string;
  /** POSTs whose signature was right. */
  readonly verified: number;
  /** POSTs that were answered with a 2xx. */
  readonly accepted: number;
  readonly body: Buffer;
};

export type DemoReceivers = {
  readonly port: number;
  url(name: ReceiverName): string;
  /** From now on what is signed with this is genuine. */
  expect(secret: string): void;
  /** Makes the broken one accept from now on. */
  mend(): void;
  /** By the delivery's id. */
  readonly received: ReadonlyMap<string, DemoArrival>;
  /** POSTs that were refused because they were not genuine. */
  refused(): number;
  close(): Promise<void>;
};

/** One HTTPS server on loopback that answers under three names, each with a temper of its own. */
export async function startDemoReceivers(options: {
  readonly authority: CertificateAuthority;
  readonly validity: Pick<CertificateRequest, "notBefore" | "notAfter">;
  /** Unix time in milliseconds. */
  readonly now: () => number;
}): Promise<DemoReceivers> {
  const { authority, validity, now } = options;
  const secrets: string[] = [];
  const received = new Map<string, DemoArrival>();
  let isMended = false;
  let refused = 0;

  function answer({ event, body, hostname }: Arrival): number {
    if (event === null) {
      refused += 1;
      return 400;
    }
    const before = received.get(event.id) ?? { verified: 0, accepted: 0 };
    const verified = before.verified + 1;
    const status = statusOf(hostname, verified);
    const accepted = before.accepted + (status < 300 ? 1 : 0);
    received.set(event.id, { analysisId: event.data.id, verified, accepted, body });
    return status;
  }

  function statusOf(hostname: string, verified: number): number {
    if (hostname === receivers.broken.hostname) return isMended ? 204 : 500;
    const isRestarting = hostname === receivers.restarting.hostname;
    return isRestarting && verified <= ATTEMPTS_REFUSED_WHILE_RESTARTING ? 503 : 204;
  }

  const tls = await authority.issue({
    names: Object.values(receivers).map(({ hostname }) => hostname),
    ...validity,
  });
  const { port, close } = await startWebhookReceiver({
    host: "127.0.0.1",
    port: 0,
    tls,
    secrets,
    toleranceSeconds: 300,
    now,
    answer,
  });
  return {
    port,
    url: (name) => `https://${receivers[name].hostname}:${port}/webhooks`,
    expect: (secret) => {
      secrets.push(secret);
    },
    mend: () => {
      isMended = true;
    },
    received,
    refused: () => refused,
    close,
  };
}
