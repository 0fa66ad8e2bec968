import type { LeasedDelivery } from "../store/claim.ts";

/**
 * The exact bytes that are signed and sent: `{"id","event","created_at","data"}` with the analysis's text put in as it
 * is stored. Nothing is parsed or written anew, so numbers past 2^53, duplicate keys and \u0000 stay as published.
 */
export function deliveryBody(delivery: LeasedDelivery, analysisText: string): Buffer {
  const createdAt = new Date(delivery.createdAtMs).toISOString();
  return Buffer.from(
    `{"id":"${delivery.deliveryId}","event":"${delivery.event}","created_at":"${createdAt}","data":${analysisText}}`,
  );
}
