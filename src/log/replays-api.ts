import type { Pool } from "pg";
import { z } from "zod";
import { id, lineOfText, time } from "../api/fields.ts";
import { read, write } from "../api/operations.ts";
import { actorOf } from "../base/model/audit.ts";
import { REPLAY_STATUSES, REPLAYABLE_STATUSES } from "../base/model/statuses.ts";
import type { Operation } from "../http/operation.ts";
import { eitherResponse, jsonBody, jsonResponse } from "../http/operation-io.ts";
import { createCursors, pageOf, pageQuery } from "../http/pagination.ts";
import { invalidRequest, type Problem } from "../http/problems.ts";
import { type AskedFilter, filterOf, filters, oneOrSeveral } from "./delivery-filter-api.ts";
import { previewReplay, REPLAY_DELIVERIES_MAX } from "./replay-set-sql.ts";
import {
  COUNTED_AT_ONCE_MAX,
  cancelReplay,
  createReplay,
  findReplay,
  listReplays,
  type ReplayLimits,
  type ReplayMaker,
  type StoredReplay,
} from "./replays-sql.ts";

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
const AskedReplayFilter = z
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
const note = lineOfText.max(NOTE_CHARS_MAX);

export const RATE_PER_SECOND_MAX = 1_000;
const RATE_PER_SECOND_DEFAULT = 10;

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

const tag = "Replays";
const path = "/v1/webhooks/replays";
const params = z.strictObject({ replay_id: id });

const NewReplay = z.strictObject({
  // Not optional: an empty filter matches everything, and that should be explicit.
  filter: AskedReplayFilter,
  rate_per_second: z
    .int()
    .min(1)
    .max(RATE_PER_SECOND_MAX)
    .default(RATE_PER_SECOND_DEFAULT)
    .describe("Maximum number of deliveries started per second."),
  dry_run: z.boolean().default(false).describe("Only count the deliveries that would be replayed."),
  expected_matched: z
    .int()
    .min(0)
    .nullable()
    .optional()
    .describe(
      "`matched` of the dry run: if by now more than 1 % more or fewer match, nothing is replayed, and the response " +
        "is 409 `replay_changed`.",
    ),
  note: note.nullable().optional().describe("Why, for whoever looks at the replay later."),
});

export const DryRun = z
  .object({
    // Not the literal `true`: clients generated from it could not read the response.
    dry_run: z.boolean().describe("Always true."),
    matched: z.int().describe("Deliveries that would be replayed."),
    own_url: z
      .int()
      .describe(
        "Of these, those published with a `webhook_url` of their own: they go there, not to the endpoint.",
      ),
    expired: z
      .int()
      .describe(
        "Deliveries that fit the filter, too, but whose analysis is no longer retained; at 100,001, that many or " +
          "more. For a key that acts for a user, those that it may read of the newest 100,001.",
      ),
  })
  .meta({ id: "ReplayDryRun", description: "The result of a dry run." });

export type ReplayDependencies = {
  readonly pool: Pool;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
  /** How many bulk replays an account may have running. */
  readonly replayLimits: ReplayLimits;
};

/** Bulk replays at a limited rate. */
export function replayOperations({
  pool,
  analysisRetentionMs,
  replayLimits,
}: ReplayDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    write({
      key: "webhooks.replays.create",
      tag,
      summary: "Replay many deliveries",
      description:
        "Selects the failed and abandoned deliveries that match the filter and whose analysis is still retained, " +
        "at most 100,000, and starts their next runs at the given rate. The set is fixed now: deliveries that " +
        "fail later are not in it. A key that acts for a user selects of those that the user may read, and sees a " +
        "replay as long as that is so of all that it has: then a repeat is 404, too. It is refused where more than " +
        "100,000 would be looked at to find those: a shorter time helps.",
      method: "POST",
      path,
      scope: "webhooks:replay",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      body: jsonBody(NewReplay),
      audit: ({ body }, result) => {
        if ("other" in result) return null;
        const { filter, rate_per_second, note } = body;
        return { replay_id: result.body.id, filter, rate_per_second, matched: result.body.matched, note };
      },
      response: eitherResponse(jsonResponse(202, Replay), {
        status: 200,
        schema: DryRun,
        description: "With `dry_run`: deliveries counted, none replayed.",
      }),
      errors: ["not_found", "too_many_replays", "replay_changed"],
      judgeRepeat: async ({ reader, body }, tx, told) => {
        // It has changed nothing, and what was counted then may be out of sight by now.
        if (body.dry_run) return "anew";
        const { id } = told as z.output<typeof Replay>;
        return (await findReplay(tx, await reader(tx), id)) === null ? "gone" : "again";
      },
      handle: async ({ reader, body, caller, problem }, tx) => {
        const who = await reader(tx);
        const { filter: asked, rate_per_second, dry_run } = body;
        if (dry_run) {
          const preview = await previewReplay(tx, who, filterOf(asked), analysisRetentionMs);
          const { matched, ownUrl, expired } = preview;
          if (matched > REPLAY_DELIVERIES_MAX) throw tooMany(caller.userId);
          return { other: { dry_run, matched, own_url: ownUrl, expired } };
        }
        const replay = await createReplay(tx, who, {
          filter: filterOf(asked),
          asked,
          ratePerSecond: rate_per_second,
          expectedMatched: body.expected_matched ?? null,
          note: body.note ?? null,
          createdBy: actorOf(caller),
          analysisRetentionMs,
          limits: replayLimits,
        });
        if (replay === "too_many_deliveries") throw tooMany(caller.userId);
        if (replay === "too_many_replays" || replay === "replay_changed") throw problem(replay);
        return { body: replayBody(replay, caller.isStaff) };
      },
    }),
    read({
      key: "webhooks.replays.list",
      tag,
      summary: "List replays",
      description:
        "The account's replays with their progress, newest first, for a key that acts for a user those of what the " +
        "user may read. `succeeded` and `failed` are as of the last " +
        "count: seconds ago for a recent replay, up to 100 for a large one, a tenth of its age for an old one. " +
        "Getting a replay that is not large counts again.",
      method: "GET",
      path,
      scope: "webhooks:replay",
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(Replay)),
      handle: async ({ accountId, reader, caller, query }) => {
        const belowId = cursors.read(query.cursor, accountId);
        const page = await listReplays(pool, await reader(), belowId, query.limit);
        return { body: cursors.pageBody(page, accountId, (one) => replayBody(one, caller.isStaff)) };
      },
    }),
    read({
      key: "webhooks.replays.get",
      tag,
      summary: "Get a replay",
      description: "A replay with its progress.",
      method: "GET",
      path: `${path}/{replay_id}`,
      scope: "webhooks:replay",
      params,
      response: jsonResponse(200, Replay),
      errors: ["not_found"],
      handle: async ({ reader, caller, params, problem }) => {
        const replay = await findReplay(pool, await reader(), params.replay_id);
        if (replay === null) throw problem("not_found");
        return { body: replayBody(replay, caller.isStaff) };
      },
    }),
    write({
      key: "webhooks.replays.cancel",
      tag,
      summary: "Cancel a replay",
      description:
        "Starts no more deliveries of the replay; those already started continue. A replay that has ended does " +
        "not change.",
      method: "POST",
      path: `${path}/{replay_id}/cancel`,
      scope: "webhooks:replay",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      params,
      audit: ({ params }) => ({ replay_id: params.replay_id }),
      judgeRepeat: async ({ reader, params }, tx) =>
        (await findReplay(tx, await reader(tx), params.replay_id)) === null ? "gone" : "again",
      response: jsonResponse(200, Replay),
      errors: ["not_found"],
      handle: async ({ reader, caller, params, problem }, tx) => {
        const replay = await cancelReplay(tx, await reader(tx), params.replay_id);
        if (replay === null) throw problem("not_found");
        return { body: replayBody(replay, caller.isStaff) };
      },
    }),
  ];
}

function tooMany(userId: string | null): Problem {
  const most = REPLAY_DELIVERIES_MAX.toLocaleString("en");
  return invalidRequest(
    "body.filter",
    `More than ${most} deliveries ${userId === null ? "match" : "match, or would be looked at for those"}: ` +
      "narrow the filter, for instance to a shorter time.",
  );
}
