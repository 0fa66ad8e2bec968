import type { Pool } from "pg";
import type { EventName } from "../model/events.ts";
import type { DeliveryStatus } from "../model/statuses.ts";
import { importSigningKey } from "../signing/index.ts";
import { type FeedEvent, type FeedPosition, findFeedEvents, findFeedPlaces } from "../store/feed.ts";
import { findSigningSecrets } from "../store/signing-secrets.ts";
import { webhookBody } from "../webhook/envelope.ts";
import { webhookSignature } from "../webhook/headers.ts";

/** A page as it is sent; a client has to hold all of it, and so do we. */
const PAGE_BYTES_MAX = 4 * 1024 * 1024;

export type FeedItem = {
  readonly deliveryId: string;
  readonly event: EventName;
  readonly createdAtMs: number;
  readonly status: DeliveryStatus;
  /** The webhook's exact text. */
  readonly body: string;
  /** As in the header of a webhook that is sent now. */
  readonly signature: string;
};

export type FeedPage = {
  readonly items: readonly FeedItem[];
  /** Behind the page: everything that is not in it and comes before has been read. */
  readonly next: FeedPosition;
};

/** Before all that is kept, whenever it is asked for. */
export const OLDEST: FeedPosition = 0;

/** The position asked for is older than what is kept. */
export class FeedExpiredError extends Error {
  override readonly name = "FeedExpiredError";
}

/** The position asked for lies in the future: no page has ever led there. */
export class FeedAheadError extends Error {
  override readonly name = "FeedAheadError";
}

/** So far the clock of a database that took over may be behind. Readers from beyond that would wait for nothing. */
const AHEAD_MAX_MS = 10_000;

/** @param after where the page begins, behind it; null: behind the newest of all */
export type ReadFeedPage = (
  accountId: string,
  after: FeedPosition | null,
  itemsMax: number,
) => Promise<FeedPage>;

/** @param retentionMs how long an event can be read */
export function createReadFeedPage(
  database: Pool,
  secretsKey: Uint8Array,
  retentionMs: number,
): ReadFeedPage {
  /** Items whose texts in JSON have PAGE_BYTES_MAX together, but at least one. */
  function itemsOf(events: readonly (FeedEvent | null)[], sign: (body: Buffer) => string) {
    const items: FeedItem[] = [];
    let bytes = 0;
    let walked = 0;
    for (const event of events) {
      if (event !== null) {
        const bytesOfBody = webhookBody({ ...event, id: event.deliveryId });
        const body = bytesOfBody.toString();
        bytes += Buffer.byteLength(JSON.stringify(body));
        if (bytes > PAGE_BYTES_MAX && items.length > 0) break;
        const { deliveryId, createdAtMs, status } = event;
        items.push({
          deliveryId,
          event: event.event,
          createdAtMs,
          status,
          body,
          signature: sign(bytesOfBody),
        });
      }
      walked++;
    }
    return { items, walked };
  }

  async function signer(accountId: string, nowMs: number): Promise<(body: Buffer) => string> {
    const secrets = await findSigningSecrets(database, accountId, secretsKey);
    if (secrets.length === 0) throw new Error(`account ${accountId} has no valid signing secret`);
    const keys = secrets.map(({ secret }) => importSigningKey(secret));
    return (body) => webhookSignature(body, keys, nowMs);
  }

  return async (accountId, after, itemsMax) => {
    const found = await findFeedPlaces(database, accountId, after, retentionMs, itemsMax);
    const { places, newest, oldest, nowMs } = found;
    if (after !== null && after !== OLDEST && after < oldest)
      throw new FeedExpiredError("the cursor has expired");
    if (after !== null && after > Math.max(newest, (nowMs + AHEAD_MAX_MS) * 1_000))
      throw new FeedAheadError("the cursor lies in the future");
    if (places.length === 0) return { items: [], next: Math.max(newest, after ?? OLDEST) };
    const ids = places.map(({ deliveryId }) => deliveryId);
    const events = await findFeedEvents(database, accountId, ids, PAGE_BYTES_MAX);
    const { items, walked } = itemsOf(events, await signer(accountId, nowMs));
    const isLast = walked === places.length && places.length < itemsMax;
    return { items, next: isLast ? newest : places[walked - 1]!.position };
  };
}
