import { z } from "zod";
import { id, lineOfText } from "../api/fields.ts";
import { operationsOf } from "../api/operations.ts";
import { actorOf } from "../base/model/audit.ts";
import { type Caller, eitherResponse, jsonBody, jsonResponse, type Operation } from "../http/operation.ts";
import { createCursors, pageOf, pageQuery } from "../http/pagination.ts";
import { invalidRequest, type Problem } from "../http/problems.ts";
import type { LogDependencies } from "./deliveries-api.ts";
import { previewReplay, REPLAY_DELIVERIES_MAX } from "./replay-set-sql.ts";
import { AskedReplayFilter, NOTHING_GIVEN, Replay } from "./replays-schema.ts";
import {
  cancelReplay,
  createReplay,
  findReplay,
  listReplays,
  type StoredReplay,
  toldOf,
} from "./replays-sql.ts";

const NOTE_CHARS_MAX = 500;
export const RATE_PER_SECOND_MAX = 1_000;
const RATE_PER_SECOND_DEFAULT = 10;

/** With the filter's missing members as null. */
export function replayBody(
  { ofUser, ...replay }: StoredReplay,
  caller: Pick<Caller, "isStaff" | "userId">,
): Replay {
  return {
    ...replay,
    filter: { ...NOTHING_GIVEN, ...replay.filter } as Replay["filter"],
    ...toldOf({ ...replay, ofUser }, caller),
  };
}

const { read, write } = operationsOf("Replays");
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
      "`matched` of the dry run: if the number that matches now differs by more than 1 %, nothing is replayed, and " +
        "the response is 409 `replay_changed`.",
    ),
  note: lineOfText
    .max(NOTE_CHARS_MAX)
    .nullable()
    .optional()
    .describe("Why, for anyone who looks at the replay later."),
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

/** Bulk replays at a limited rate. */
export function replayOperations({
  pool,
  analysisRetentionMs,
  replayLimits,
}: LogDependencies): readonly Operation[] {
  const cursors = createCursors(id);
  return [
    write({
      key: "webhooks.replays.create",
      summary: "Replay many deliveries",
      description:
        "Selects the failed and abandoned deliveries that match the filter and whose analysis is still retained, " +
        "at most 100,000, and starts their next runs at the given rate. The set is fixed now: deliveries that " +
        "fail later are not in it. A key that acts for a user selects from those that the user may read, and sees " +
        "a replay only as long as the user may read all of its deliveries: after that a repeat gets 404, too. A " +
        "request is refused if more than 100,000 would have to be looked at to find those: a shorter time range helps.",
      method: "POST",
      path,
      scope: "webhooks:replay",
      mode: "async",
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
        const { id } = told as Replay;
        return (await findReplay(tx, await reader(tx), id)) === null ? "gone" : "again";
      },
      handle: async ({ reader, body, caller, problem }, tx) => {
        const who = await reader(tx);
        const { filter, rate_per_second, dry_run } = body;
        if (dry_run) {
          const preview = await previewReplay(tx, who, filter, analysisRetentionMs);
          if (preview.matched > REPLAY_DELIVERIES_MAX) throw tooMany(caller.userId);
          return { other: { dry_run, ...preview } };
        }
        const replay = await createReplay(tx, who, {
          filter,
          ratePerSecond: rate_per_second,
          expectedMatched: body.expected_matched ?? null,
          note: body.note ?? null,
          createdBy: actorOf(caller),
          analysisRetentionMs,
          limits: replayLimits,
        });
        if (replay === "too_many_deliveries") throw tooMany(caller.userId);
        if (replay === "too_many_replays" || replay === "replay_changed") throw problem(replay);
        return { body: replayBody(replay, caller) };
      },
    }),
    read({
      key: "webhooks.replays.list",
      summary: "List replays",
      description:
        "The account's replays with their progress, newest first; for a key that acts for a user, those whose " +
        "deliveries the user may read. `succeeded`, `failing` and `failed` are as of the last " +
        "count: seconds ago for a recent replay, up to 100 for a large one, a tenth of its age for an old one. " +
        "Getting a replay that is not large counts again.",
      path,
      scope: "webhooks:replay",
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(Replay)),
      handle: async ({ accountId, reader, caller, query }) => {
        const belowId = cursors.read(query.cursor, accountId);
        const page = await listReplays(pool, await reader(), belowId, query.limit);
        return { body: cursors.pageBody(page, accountId, (one) => replayBody(one, caller)) };
      },
    }),
    read({
      key: "webhooks.replays.get",
      summary: "Get a replay",
      description: "A replay with its progress.",
      path: `${path}/{replay_id}`,
      scope: "webhooks:replay",
      params,
      response: jsonResponse(200, Replay),
      errors: ["not_found"],
      handle: async ({ reader, caller, params, problem }) => {
        const replay = await findReplay(pool, await reader(), params.replay_id);
        if (replay === null) throw problem("not_found");
        return { body: replayBody(replay, caller) };
      },
    }),
    write({
      key: "webhooks.replays.cancel",
      summary: "Cancel a replay",
      description:
        "Starts no more deliveries of the replay; those already started continue. A replay that has ended does " +
        "not change. For a key that acts for a user: 403, unless a key of that user created it.",
      method: "POST",
      path: `${path}/{replay_id}/cancel`,
      scope: "webhooks:replay",
      mode: "async",
      params,
      audit: ({ params }) => ({ replay_id: params.replay_id }),
      judgeRepeat: async ({ reader, params }, tx) =>
        (await findReplay(tx, await reader(tx), params.replay_id)) === null ? "gone" : "again",
      response: jsonResponse(200, Replay),
      errors: ["not_found", "access_denied"],
      handle: async ({ reader, caller, params, problem }, tx) => {
        const who = await reader(tx);
        const found = caller.userId === null ? null : await findReplay(tx, who, params.replay_id);
        if (found !== null && found.ofUser !== caller.userId) {
          const message = "It acts for a user, and someone else's key created this replay.";
          throw problem("access_denied", [{ path: "header.authorization", message }]);
        }
        const replay = await cancelReplay(tx, who, params.replay_id);
        if (replay === null) throw problem("not_found");
        return { body: replayBody(replay, caller) };
      },
    }),
  ];
}

function tooMany(userId: string | null): Problem {
  const most = REPLAY_DELIVERIES_MAX.toLocaleString("en");
  return invalidRequest(
    "body.filter",
    `More than ${most} deliveries match${userId === null ? "" : ", or would have to be looked at to find them"}: ` +
      "narrow the filter, for instance to a shorter time range.",
  );
}
