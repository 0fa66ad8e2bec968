import { z } from "zod";
import { HELD_SECONDS_MAX } from "../api/limits.ts";
import type { Operation } from "../api/operation.ts";
import { jsonResponse } from "../api/operation-io.ts";
import { createCursors, pageQuery } from "../api/pagination.ts";
import { invalidRequest } from "../api/problems.ts";
import { isoTime } from "../deliveries/time-text.ts";
import {
  createReadFeedPage,
  FeedAheadError,
  FeedExpiredError,
  type FeedItem,
  OLDEST,
} from "../feed/feed-page.ts";
import { DELIVERY_STATUSES } from "../model/statuses.ts";
import { event, id, time } from "./fields.ts";
import type { Dependencies } from "./sealpost-operation.ts";
import { read } from "./sealpost-operation.ts";

/** In place of a cursor: begin with what is published from now on. */
const NEWEST = "newest";

const query = z.strictObject({
  cursor: pageQuery.cursor.describe(
    "`next_cursor` of the previous page; without it, the feed begins at the oldest event that is kept, and with " +
      `\`${NEWEST}\` behind the newest.`,
  ),
  limit: pageQuery.limit,
  wait: z
    .int()
    .min(0)
    .max(HELD_SECONDS_MAX)
    .default(0)
    .describe(
      "Where there is nothing to read, the answer is held for up to this many seconds, until there is. It may come " +
        `sooner and be empty. With \`cursor=${NEWEST}\` it comes at once.`,
    ),
});

const PublishedEvent = z
  .object({
    delivery_id: id.describe("The same as `id` in the webhook's body: handle each once, however it arrives."),
    event,
    created_at: time,
    status: z.enum(DELIVERY_STATUSES).describe("Of its delivery to your endpoint, at this moment."),
    body: z.string().describe("The webhook's body, exactly as it is delivered. Verify it before parsing it."),
    signature: z
      .string()
      .describe("What the header `extract-signature` would be if this body were delivered now."),
  })
  .meta({ id: "PublishedEvent", description: "An event with its webhook." });

const EventPage = z.object({
  items: z.array(PublishedEvent),
  next_cursor: z
    .string()
    .describe("Goes on behind this page, also at the end: keep it, and ask again with it."),
});

/** Reading what was published, without an endpoint. */
export function eventOperations(dependencies: Dependencies): readonly Operation[] {
  const { logPool, secretsKey, analysisRetentionMs } = dependencies;
  const cursors = createCursors(z.int().min(0));
  const readPage = createReadFeedPage(logPool, secretsKey, analysisRetentionMs);

  return [
    read({
      key: "webhooks.events.list",
      tag: "Events",
      summary: "List events",
      description:
        "Everything that was published, oldest first, each event once, with the webhook that tells of it and a " +
        "fresh signature: for receivers that cannot be reached, and for finding what one missed. Nothing is " +
        "skipped, in whatever order transactions commit: read page after page with `next_cursor`, for ever. A page " +
        "holds analyses of at most 1 MiB together, and at least one event if there is any. A cursor that is older " +
        "than the analyses are kept (7 days) is refused with 410. For a key that acts for a user, what runs of " +
        "workflows published in spaces of others is not there: a page looks at 10,000 events at most, and may be " +
        "empty where the user sees none of them. Then it comes at once, whatever `wait` is, with `More-Behind: true`.",
      method: "GET",
      path: "/v1/webhooks/events",
      scope: "analyses:read",
      query,
      response: jsonResponse(200, EventPage, {
        "More-Behind":
          "`true` when the page is empty before the end of the feed: go on with `next_cursor` at once.",
      }),
      errors: ["cursor_expired"],
      waits: {
        // What is new is behind the newest of before, which the answer names.
        waitMs: ({ query }) => (query.cursor === NEWEST ? 0 : query.wait * 1_000),
        isEmpty: ({ body, headers }) => body.items.length === 0 && headers === undefined,
      },
      handle: async ({ accountId, reader, query, problem }) => {
        try {
          const after =
            query.cursor === NEWEST ? null : (cursors.read(query.cursor, { accountId }) ?? OLDEST);
          const page = await readPage(await reader(), after, query.limit);
          const next_cursor = cursors.write(page.next, { accountId });
          const body = { items: page.items.map(itemBody), next_cursor };
          return page.isCut && body.items.length === 0
            ? { body, headers: { "More-Behind": "true" } }
            : { body };
        } catch (error) {
          if (error instanceof FeedAheadError) {
            throw invalidRequest("query.cursor", "Not a cursor of this feed: it lies in the future.");
          }
          if (!(error instanceof FeedExpiredError)) throw error;
          const oldest = cursors.write(OLDEST, { accountId });
          const message = `It is older than what is kept. The oldest cursor is ${oldest}`;
          throw problem("cursor_expired", [{ path: "query.cursor", message }]);
        }
      },
    }),
  ];
}

function itemBody(item: FeedItem): z.output<typeof PublishedEvent> {
  const { deliveryId, createdAtMs, status, body, signature } = item;
  return {
    delivery_id: deliveryId,
    event: item.event,
    created_at: isoTime(createdAtMs),
    status,
    body,
    signature,
  };
}
