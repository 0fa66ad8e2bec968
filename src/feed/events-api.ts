import type { Pool } from "pg";
import { z } from "zod";
import { event, id, time } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import type { DomainCode } from "../api/problems.ts";
import { EVENTS_BEHIND_COUNTED_MAX } from "../base/model/events.ts";
import type { Reader } from "../base/model/reader.ts";
import type { SecretsKey } from "../base/model/secrets-key.ts";
import { DELIVERY_STATUSES } from "../base/model/statuses.ts";
import { DAY_MS, isoTime } from "../base/model/time.ts";
import { findSigningSecrets } from "../delivery/signing-secrets-sql.ts";
import { webhookBody, webhookSignature } from "../delivery/webhook.ts";
import { CURSOR_CHARS_MAX, HELD_SECONDS_MAX } from "../http/limits.ts";
import { emptyResponse, jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery } from "../http/pagination.ts";
import { invalidRequest, Problem } from "../http/problems.ts";
import { importSigningKey, type SigningKey } from "../signing/index.ts";
import * as store from "./feed-sql.ts";
import { type FeedEvent, type FeedPosition, OLDEST } from "./feed-sql.ts";

/**
 * Of a page's analyses together, before JSON escapes them, which at worst doubles them. A page of 4 MiB kept the
 * process for 40 ms, in which nobody else was answered.
 */
const PAGE_BYTES_MAX = 1024 * 1024;

const path = "/v1/webhooks/events";

/** In place of a cursor: begin with what is published from now on. */
const NEWEST = "newest";

const consumerName = z
  .string()
  .max(64)
  // Of full stops alone, it would be a way up in the path of its acknowledgement.
  .regex(/^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$/, "Must be of A-Z a-z 0-9 . _ -, and not of full stops alone");

const query = z.strictObject({
  consumer: consumerName
    .optional()
    .describe(
      "A name of yours, such as `billing`, for a reader that keeps no cursor. Without `cursor`, the page then " +
        "begins behind what was last acknowledged under it, or at the oldest event if nothing was. Not for keys " +
        "that act for a user.",
    ),
  cursor: pageQuery.cursor.describe(
    "`next_cursor` of the previous page; without it, the feed begins at the oldest event that is kept, and with " +
      `\`${NEWEST}\` after the newest.`,
  ),
  limit: pageQuery.limit,
  wait: z
    .int()
    .min(0)
    .max(HELD_SECONDS_MAX)
    .default(0)
    .describe(
      "If there is nothing to read, the answer is held for up to this many seconds, until there is. It may come " +
        `sooner and be empty. With \`cursor=${NEWEST}\` it comes at once.`,
    ),
});

const PublishedEvent = z
  .object({
    delivery_id: id.describe("The same as `id` in the webhook's body: handle each once, however it arrives."),
    event,
    created_at: time,
    status: z.enum(DELIVERY_STATUSES).describe("Of its delivery to your endpoint, at this moment."),
    body: z
      .string()
      .describe(
        "The webhook's body, exactly as it is delivered. Verify it before parsing it. With `data: null` if the " +
          "analysis was erased.",
      ),
    signature: z
      .string()
      .describe("What the header `extract-signature` would be if this body were delivered now."),
  })
  .meta({ id: "PublishedEvent", description: "An event with its webhook." });

const otherReader = z
  .object({ seen_at: time })
  .nullable()
  .describe(
    "Of a `consumer`: when two readers were last seen to use its name, within the last day; null: not seen. Each " +
      "misses what the other acknowledges, or both handle it: give them names of their own.",
  );

const EventPage = z.object({
  items: z.array(PublishedEvent),
  next_cursor: z
    .string()
    .describe("Continues after this page, even at the end: keep it, and ask again with it."),
  other_reader: otherReader.optional(),
});

const EventConsumer = z
  .object({
    name: z.string(),
    read_to: time.describe("It has acknowledged what was in the feed by then."),
    updated_at: time.describe(
      "When it last acknowledged something; one that waits for the next event has its place moved on once a day.",
    ),
    events_behind: z
      .int()
      .min(0)
      .max(EVENTS_BEHIND_COUNTED_MAX)
      .describe(
        `Events behind its place, of those that are kept. No more than ${EVENTS_BEHIND_COUNTED_MAX} are counted.`,
      ),
    behind_since: time
      .nullable()
      .describe("Since when the first of those is in the feed; null: there is none."),
    expired: z
      .boolean()
      .describe(
        "Its place is older than what is kept, and its reader gets `cursor_expired` until it is removed.",
      ),
    other_reader: otherReader,
  })
  .meta({ id: "EventConsumer", description: "A name under which a reader's place in the events is kept." });

export type EventConsumer = z.output<typeof EventConsumer>;

const position = z.int().min(0);
/** Where it leads to, and where the page began that it ends. In place of both, one number. */
const cursors = createCursors(z.union([z.tuple([position, position]), position]));

/** So far the clock of a database that took over may be behind. Readers from beyond that would wait for nothing. */
const AHEAD_MAX_MS = 10_000;

/** A consumer whose place is older has it moved to the end if nothing is behind it, so that it does not expire. */
const IDLE_MAX = DAY_MS * 1_000;

/**
 * What reads a page of the feed behind a position; null: behind the newest of all. It throws a problem for a position
 * that is older than what is kept, or that no page has ever led to.
 *
 * @param retentionMs how long an event can be read
 */
export function createReadFeedPage(database: Pool, secretsKey: SecretsKey, retentionMs: number) {
  return async (reader: Reader, after: FeedPosition | null, itemsMax: number): Promise<FeedPage> => {
    const { accountId } = reader;
    const found = await store.findFeedPlaces(database, reader, after, retentionMs, itemsMax);
    const { places, newest, oldest, lookedTo, nowMs } = found;
    if (after !== null && after !== OLDEST && after < oldest) throw expired(accountId);
    if (after !== null && after > Math.max(newest, (nowMs + AHEAD_MAX_MS) * 1_000)) {
      throw invalidRequest("query.cursor", "Not a cursor of this feed: it is in the future.");
    }
    const end = lookedTo ?? newest;
    const isCut = lookedTo !== null;
    if (places.length === 0) {
      return { items: [], first: Number.POSITIVE_INFINITY, next: Math.max(end, after ?? OLDEST), isCut };
    }
    const ids = places.map(({ deliveryId }) => deliveryId);
    const events = await store.findFeedEvents(database, accountId, ids, PAGE_BYTES_MAX);
    const secrets = await findSigningSecrets(database, accountId, secretsKey);
    if (secrets.length === 0) throw new Error(`account ${accountId} has no valid signing secret`);
    const keys = secrets.map(({ secret }) => importSigningKey(secret));
    const items = events.flatMap((event) => (event === null ? [] : [itemOf(event, keys, nowMs)]));
    const isLast = events.length === places.length && places.length < itemsMax;
    const first = places[0]!.position;
    return {
      items,
      first,
      next: isLast ? end : places[events.length - 1]!.position,
      isCut: isCut || !isLast,
    };
  };
}

type FeedPage = {
  readonly items: z.output<typeof PublishedEvent>[];
  /** Of the first event; infinite where there is none. */
  readonly first: FeedPosition;
  /** Behind the page: everything that is not in it and comes before has been read. */
  readonly next: FeedPosition;
  /** There is more to be looked at behind the page, although it may be empty. */
  readonly isCut: boolean;
};

function expired(accountId: string): Problem {
  const oldest = cursors.write(OLDEST, { accountId });
  const message = `It is older than what is kept. The oldest cursor is ${oldest}`;
  return new Problem("cursor_expired" satisfies DomainCode, {
    errors: [{ path: "query.cursor", message }],
  });
}

/** Null: no cursor. */
function placesOf(cursor: string | undefined, accountId: string, path?: string) {
  const read = cursors.read(cursor, { accountId }, path);
  return typeof read === "number" ? ([read, read] as const) : read;
}

function itemOf(event: FeedEvent, keys: readonly SigningKey[], nowMs: number): FeedPage["items"][number] {
  const body = webhookBody(event);
  return {
    delivery_id: event.id,
    event: event.event,
    created_at: isoTime(event.createdAtMs),
    status: event.status,
    body: body.toString(),
    signature: webhookSignature(body, keys, nowMs),
  };
}

export type EventDependencies = {
  readonly pool: Pool;
  /** For reading the delivery log; see readingLog. */
  readonly logPool: Pool;
  /** Opens and seals signing secrets. */
  readonly secretsKey: SecretsKey;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
};

/** Reading what was published, without an endpoint. */
export function eventOperations({
  pool,
  logPool,
  secretsKey,
  analysisRetentionMs,
}: EventDependencies): readonly Operation[] {
  const readPage = createReadFeedPage(logPool, secretsKey, analysisRetentionMs);
  const { read, write } = operationsOf("Events");

  return [
    read({
      key: "webhooks.events.list",
      summary: "List events",
      description:
        "Everything that was published, oldest first, each event once, with its webhook and a fresh " +
        "signature: for receivers that cannot be reached, and for finding missed events. Nothing is " +
        "skipped, in whatever order transactions commit: keep reading page after page with `next_cursor`. A page " +
        "holds at most 1 MiB of analyses, and at least one event if there is any. A cursor that is older than the " +
        "oldest analysis kept (7 days) is refused with 410. A reader without a place for its cursor names itself " +
        "(`consumer`), and acknowledges what it has handled. A key that acts for a user does not get what " +
        "workflow runs published in spaces that the user is not a member of. A page covers at most 10,000 events, " +
        "and is empty if the user may see none of them. Then it comes at once, whatever `wait` is, with " +
        "`More-Behind: true`.",
      path,
      scope: "analyses:read",
      query,
      response: jsonResponse(200, EventPage, {
        "More-Behind":
          "`true` when the page is empty before the end of the feed: go on with `next_cursor` at once.",
      }),
      errors: ["cursor_expired", "access_denied"],
      waits: {
        // What is new is behind the newest of before, which the answer names.
        waitMs: ({ query }) => (query.cursor === NEWEST ? 0 : query.wait * 1_000),
        isEmpty: ({ body, headers }) => body.items.length === 0 && headers === undefined,
      },
      handle: async ({ accountId, reader, caller, query, problem }) => {
        const name = query.consumer;
        const consumer = name === undefined ? null : { accountId, name, keyId: caller.keyId };
        if (consumer && caller.userId !== null) {
          const message = "Consumers are the account's, and the key acts for a user.";
          throw problem("access_denied", [{ path: "query.consumer", message }]);
        }
        const kept = consumer && (await store.findConsumer(pool, consumer));
        const begin = kept?.position ?? OLDEST;
        const after = query.cursor === NEWEST ? null : (placesOf(query.cursor, accountId)?.[0] ?? begin);
        const { items, first, next, isCut } = await readPage(await reader(), after, query.limit);
        const isIdle = items.length === 0 && !isCut && after === kept?.position && next - after > IDLE_MAX;
        if (consumer && isIdle) await store.passOver(pool, consumer, after, next);
        // There is nothing between a page's beginning and its first event: a place there was moved on, not read to.
        const place = isIdle ? next : begin;
        const from = after === null ? next : place < first ? Math.max(after, place) : after;
        const seenAtMs = kept?.otherSeenAtMs ?? null;
        const body = {
          items,
          next_cursor: cursors.write([next, from], { accountId }),
          ...(consumer && { other_reader: seenAtMs === null ? null : { seen_at: isoTime(seenAtMs) } }),
        };
        return isCut && items.length === 0 ? { body, headers: { "More-Behind": "true" } } : { body };
      },
    }),
    write({
      key: "webhooks.events.ack",
      summary: "Acknowledge events",
      description:
        "Keeps for a consumer that everything up to the cursor is done: its reader goes on behind it, after a crash, " +
        "too. Send `next_cursor` when all of the page has been handled, pages in their order. The first " +
        "acknowledgement makes the name; one that nobody has used for as long as the delivery log is kept is " +
        "forgotten. The place never goes back, so an older cursor changes nothing: to read something again, ask with " +
        "`cursor`, or under another name. If a page is acknowledged that somebody else has acknowledged since it was " +
        "read, or another key has used the name within a day, there are two readers, and `other_reader` tells both. " +
        "A request that is repeated needs the same Idempotency-Key, or it counts as one.",
      method: "POST",
      path: `${path}/consumers/{name}/ack`,
      scope: "analyses:read",
      risk: "reversible",
      isOfAccount: true,
      params: z.strictObject({ name: consumerName }),
      body: jsonBody(z.strictObject({ cursor: z.string().min(1).max(CURSOR_CHARS_MAX) })),
      audit: {
        elsewhere: "the consumer's row says when and with which key: there is one for each page read",
      },
      response: emptyResponse(),
      errors: ["too_many_consumers"],
      handle: async ({ accountId, params, body, caller, problem }, tx) => {
        const consumer = { accountId, name: params.name, keyId: caller.keyId };
        const places = placesOf(body.cursor, accountId, "body.cursor")!;
        if (!(await store.acknowledge(tx, consumer, places))) throw problem("too_many_consumers");
      },
    }),
    read({
      key: "webhooks.events.consumers.list",
      summary: "List consumers",
      description: "The names that have acknowledged events, at most 100, and how far each has come.",
      path: `${path}/consumers`,
      scope: "webhooks:read",
      isOfAccount: true,
      response: jsonResponse(200, pageOf(EventConsumer)),
      handle: async ({ accountId }) => {
        const kept = await store.listConsumers(pool, accountId, analysisRetentionMs);
        const items = kept.map(({ other_seen_at: seen_at, ...consumer }) => ({
          ...consumer,
          other_reader: seen_at === null ? null : { seen_at },
        }));
        return { body: { items, next_cursor: null, total: items.length } };
      },
    }),
    write({
      key: "webhooks.events.consumers.remove",
      summary: "Remove a consumer",
      description:
        "Forgets the name and its place. Whoever reads under it next begins at the oldest event that is kept. A " +
        "reader that is still running makes it again when it acknowledges its page: stop it first.",
      method: "DELETE",
      path: `${path}/consumers/{name}`,
      scope: "webhooks:write",
      isOfAccount: true,
      params: z.strictObject({ name: consumerName }),
      audit: ({ params }) => ({ name: params.name }),
      response: emptyResponse(),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }, tx) => {
        if (!(await store.removeConsumer(tx, accountId, params.name))) throw problem("not_found");
      },
    }),
  ];
}
