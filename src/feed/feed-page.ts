import type { Pool } from "pg";
import type { EventName } from "../model/events.ts";
import type { Reader } from "../model/reader.ts";
import type { DeliveryStatus } from "../model/statuses.ts";
import { importSigningKey } from "../signing/index.ts";
import { type FeedEvent, type FeedPosition, findFeedEvents, findFeedPlaces } from "../store/feed.ts";
import { findSigningSecrets } from "../store/signing-secrets.ts";
import { webhookBody } from "../webhook/envelope.ts";
import { webhookSignature } from "../webhook/headers.ts";

/**
 * Of a page's analyses together, before JSON escapes them, which at worst doubles them. A page of 4 MiB kept the
 * process for 40 ms, in which nobody else was answered.
 */
const PAGE_BYTES_MAX = 1024 * 1024;

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
  /** There is more to be looked at behind the page, although it may be empty. */
  readonly isCut: boolean;
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
  reader: Reader,
  after: FeedPosition | null,
  itemsMax: number,
) => Promise<FeedPage>;

/** @param retentionMs how long an event can be read */
export function createReadFeedPage(
  database: Pool,
  secretsKey: Uint8Array,
  retentionMs: number,
): ReadFeedPage {
  async function signer(accountId: string, nowMs: number): Promise<(body: Buffer) => string> {
    const secrets = await findSigningSecrets(database, accountId, secretsKey);
    if (secrets.length === 0) throw new Error(`account ${accountId} has no valid signing secret`);
    const keys = secrets.map(({ secret }) => importSigningKey(secret));
    return (body) => webhookSignature(body, keys, nowMs);
  }

  return async (reader, after, itemsMax) => {
    const { accountId } = reader;
    const found = await findFeedPlaces(database, reader, after, retentionMs, itemsMax);
    const { places, newest, oldest, lookedTo, nowMs } = found;
    if (after !== null && after !== OLDEST && after < oldest)
      throw new FeedExpiredError("the cursor has expired");
    if (after !== null && after > Math.max(newest, (nowMs + AHEAD_MAX_MS) * 1_000))
      throw new FeedAheadError("the cursor lies in the future");
    const end = lookedTo ?? newest;
    const isCut = lookedTo !== null;
    if (places.length === 0) return { items: [], next: Math.max(end, after ?? OLDEST), isCut };
    const ids = places.map(({ deliveryId }) => deliveryId);
    const events = await findFeedEvents(database, accountId, ids, PAGE_BYTES_MAX);
    const sign = await signer(accountId, nowMs);
    const items = events.flatMap((event) => (event === null ? [] : [itemOf(event, sign)]));
    const isLast = events.length === places.length && places.length < itemsMax;
    return { items, next: isLast ? end : places[events.length - 1]!.position, isCut: isCut || !isLast };
  };
}

function itemOf(event: FeedEvent, sign: (body: Buffer) => string): FeedItem {
  const { deliveryId, createdAtMs, status } = event;
  const body = webhookBody({ ...event, id: deliveryId });
  return {
    deliveryId,
    event: event.event,
    createdAtMs,
    status,
    body: body.toString(),
    signature: sign(body),
  };
}
