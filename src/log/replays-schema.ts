import { z } from "zod";
import { id, time } from "../api/fields.ts";
import { REPLAY_STATUSES, REPLAYABLE_STATUSES } from "../base/model/statuses.ts";
import { filters, oneOrSeveral } from "./delivery-filter-api.ts";
import { errorCode } from "./error-codes-api.ts";

/** Who started a replay, of one delivery or many. */
export const ReplayMaker = z.object({
  staff: z.boolean().describe("Whether it was support staff."),
  key_id: id.nullable().describe("Null: support staff without a key."),
  name: z.string().nullable().describe("The API key's name. Staff's is for staff only."),
  viewer: z
    .string()
    .nullable()
    .describe(
      "The viewer of the console session. Null: it was not a console session. Staff's is for staff only.",
    ),
});

/** Each filter may be missing or null; responses write a missing one as null. */
const membersOfFilter = {
  ...filters,
  status: oneOrSeveral("ReplayableStatus", REPLAYABLE_STATUSES).describe("One of these. Both, if not given."),
};

type Members = typeof membersOfFilter;
const nullable = Object.fromEntries(
  Object.entries(membersOfFilter).map(([name, member]) => [name, member.nullable()]),
) as { [Name in keyof Members]: z.ZodNullable<Members[Name]> };

/** The requested filter. Of the matches, only failed and abandoned deliveries are replayed. */
export const AskedReplayFilter = z.strictObject(nullable).partial().meta({
  id: "ReplayFilter",
  description: "Which failed and abandoned deliveries to replay: those that match every given filter.",
});

/** A component of its own: named after `Replay.filter`, generators took it for the request's `ReplayFilter`. */
const GivenFilter = z
  .object(nullable)
  .meta({ id: "GivenReplayFilter", description: "The filter of a replay as it was given; null: not given." });

export const NOTHING_GIVEN = Object.fromEntries(
  Object.keys(membersOfFilter).map((name) => [name, null]),
) as z.output<typeof GivenFilter>;

/** What counting these takes, some 30 ms, is no burden to anybody. */
export const COUNTED_AT_ONCE_MAX = 5_000;

export const Replay = z
  .object({
    id,
    status: z
      .enum(REPLAY_STATUSES)
      .describe(
        "`running`: starting deliveries; `delivering`: all are started, some still have an attempt due; `done`: all " +
          "have ended; `cancelled`: no more are started.",
      ),
    filter: GivenFilter,
    rate_per_second: z.int(),
    matched: z.int().describe("Deliveries in the set, which is fixed when the replay is created."),
    replayed: z.int().describe("Of these, those whose next run has started."),
    skipped: z
      .int()
      .describe("Those skipped when their turn came: already delivered, already replayed, or expired."),
    succeeded: z
      .int()
      .describe(
        `Of the replayed, those that have succeeded. With more than ${COUNTED_AT_ONCE_MAX} replayed, as of the ` +
          "last count, as in the list.",
      ),
    waiting: z
      .int()
      .describe("Of the replayed, those that still have an attempt due. Counted like `succeeded`."),
    failing: z.int().describe("Of those waiting, those whose last attempt failed. Counted like `succeeded`."),
    failing_causes: z
      .array(z.object({ error_code: errorCode, deliveries: z.int() }))
      .describe("The most common errors of those failing, at most 5."),
    failed: z.int().describe("Of the replayed, those that were abandoned again. Counted like `succeeded`."),
    note: z
      .string()
      .nullable()
      .describe("Null, too, for a key that acts for a user, if no key of that user made it."),
    created_by: ReplayMaker.nullable().describe(
      "Null if no API key made it, or before this was recorded; for a key that acts for a user, if no key of that " +
        "user made it.",
    ),
    created_at: time,
    ended_at: time.nullable(),
  })
  .meta({ id: "Replay", description: "A bulk replay with its progress." });

export type Replay = z.output<typeof Replay>;
