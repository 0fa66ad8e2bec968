import { z } from "zod";
import { REPLAY_STATUSES, REPLAYABLE_STATUSES } from "../model/statuses.ts";
import { COUNTED_AT_ONCE_MAX, type ReplayMaker, type StoredReplay } from "../store/replays.ts";
import { type AskedFilter, filters, oneOrSeveral } from "./delivery-filter.ts";
import { id, lineOfText, time } from "./fields.ts";

/** Each filter may be missing or null; responses write a missing one as null. */
const membersOfFilter = {
  ...filters,
  status: oneOrSeveral(REPLAYABLE_STATUSES).describe("One of these. Both, if not given."),
};

type Nullish<Fields extends Record<string, z.ZodType>> = {
  [Name in keyof Fields]: z.ZodOptional<z.ZodNullable<Fields[Name]>>;
};
type Nullable<Fields extends Record<string, z.ZodType>> = {
  [Name in keyof Fields]: z.ZodNullable<Fields[Name]>;
};

/** The requested filter. Of the matches, only failed and abandoned deliveries are replayed. */
export const AskedReplayFilter = z
  .strictObject(
    mapped(membersOfFilter, (member) => member.nullable().optional()) as Nullish<typeof membersOfFilter>,
  )
  .meta({
    id: "ReplayFilter",
    description: "Which failed and abandoned deliveries to replay: those that match every given filter.",
  });

/** A component of its own: named after `Replay.filter`, generators took it for the request's `ReplayFilter`. */
const GivenFilter = z
  .object(mapped(membersOfFilter, (member) => member.nullable()) as Nullable<typeof membersOfFilter>)
  .meta({ id: "GivenReplayFilter", description: "The filter of a replay as it was given; null: not given." });

const NOTE_CHARS_MAX = 500;
export const note = lineOfText.max(NOTE_CHARS_MAX);

export const RATE_PER_SECOND_MAX = 1_000;
export const RATE_PER_SECOND_DEFAULT = 10;

export const Replay = z
  .object({
    id,
    status: z
      .enum(REPLAY_STATUSES)
      .describe(
        "`running`: starting deliveries; `delivering`: all are started, some have an attempt to come; `done`: all " +
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
    waiting: z.int().describe("Of the replayed, those with an attempt to come. Counted like `succeeded`."),
    failed: z.int().describe("Of the replayed, those that were abandoned again. Counted like `succeeded`."),
    note: z.string().nullable(),
    created_by: z
      .object({
        staff: z.boolean().describe("Whether it was support staff."),
        key_id: id.nullable().describe("Null: support staff without a key."),
        name: z.string().nullable().describe("The API key's name. Staff's is for staff only."),
        viewer: z
          .string()
          .nullable()
          .describe(
            "Whose session of the console it was. Null: it was no session. Staff's is for staff only.",
          ),
      })
      .nullable()
      .describe("Null if no API key made it, or before this was recorded."),
    created_at: time,
    ended_at: time.nullable(),
  })
  .meta({ id: "Replay", description: "A bulk replay with its progress." });

/** What support staff are called is for staff to see. */
export function replayBody(replay: StoredReplay, isForStaff: boolean): z.output<typeof Replay> {
  return {
    id: replay.id,
    status: replay.status,
    filter: filterBody(replay.filter as AskedFilter),
    rate_per_second: replay.ratePerSecond,
    matched: replay.matched,
    replayed: replay.replayed,
    skipped: replay.skipped,
    succeeded: replay.succeeded,
    // What has ended is all there is once it is done, even where another replay has begun a delivery anew.
    waiting: replay.status === "done" ? 0 : replay.replayed - replay.succeeded - replay.failed,
    failed: replay.failed,
    note: replay.note,
    created_by: replay.createdBy && makerBody(replay.createdBy, isForStaff),
    created_at: replay.createdAt.toISOString(),
    ended_at: replay.endedAt?.toISOString() ?? null,
  };
}

function makerBody({ isStaff, keyId, name, viewer }: ReplayMaker, isForStaff: boolean) {
  const isHidden = isStaff && !isForStaff;
  return { staff: isStaff, key_id: keyId, name: isHidden ? null : name, viewer: isHidden ? null : viewer };
}

/** As requested, with missing filters as null. */
function filterBody(asked: AskedFilter): z.output<typeof GivenFilter> {
  const names = Object.keys(membersOfFilter) as (keyof AskedFilter)[];
  return Object.fromEntries(names.map((name) => [name, asked[name] ?? null])) as z.output<typeof GivenFilter>;
}

function mapped(
  fields: Readonly<Record<string, z.ZodType>>,
  change: (field: z.ZodType) => z.ZodType,
): Record<string, z.ZodType> {
  return Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, change(field)]));
}
