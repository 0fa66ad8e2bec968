import { z } from "zod";
import type { Operation } from "../api/operation.ts";
import { eitherResponse, jsonBody, jsonResponse } from "../api/operation-io.ts";
import { createCursors, pageOf, pageQuery } from "../api/pagination.ts";
import { invalidRequest, type Problem } from "../api/problems.ts";
import {
  cancelReplay,
  countReplayable,
  createReplay,
  findReplay,
  listReplays,
  REPLAY_DELIVERIES_MAX,
} from "../store/replays.ts";
import { filterOf } from "./delivery-filter.ts";
import { id } from "./fields.ts";
import {
  AskedReplayFilter,
  RATE_PER_SECOND_DEFAULT,
  RATE_PER_SECOND_MAX,
  Replay,
  replayBody,
} from "./replay-schema.ts";
import type { Dependencies } from "./sealpost-operation.ts";
import { read, write } from "./sealpost-operation.ts";

const tag = "Replays";
const path = "/v1/webhooks/replays";
const params = z.strictObject({ replay_id: id });

const NewReplay = z.strictObject({
  // Not optional: an empty one takes everything, and that should be said.
  filter: AskedReplayFilter,
  rate_per_second: z
    .int()
    .min(1)
    .max(RATE_PER_SECOND_MAX)
    .default(RATE_PER_SECOND_DEFAULT)
    .describe("Deliveries that are started in a second, at most."),
  dry_run: z.boolean().default(false).describe("Only count what would be taken; nothing is done."),
});

const DryRun = z
  .object({ dry_run: z.literal(true), matched: z.int().describe("Deliveries that the replay would take.") })
  .meta({ id: "ReplayDryRun", description: "What a replay would do." });

/** Replaying many deliveries at a pace. */
export function replayOperations(dependencies: Dependencies): readonly Operation[] {
  const { pool, analysisRetentionMs } = dependencies;
  const cursors = createCursors(id);
  return [
    write({
      key: "webhooks.replays.create",
      tag,
      summary: "Replay many deliveries",
      description:
        "Takes the failed and abandoned deliveries that fit the filter and whose analysis is still kept, at most " +
        "100,000, and starts their next run one after the other at the given pace. The set is fixed now: what fails " +
        "later is not part of it.",
      method: "POST",
      path,
      scope: "webhooks:replay",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      body: jsonBody(NewReplay),
      response: eitherResponse(jsonResponse(202, Replay), {
        status: 200,
        schema: DryRun,
        description: "With `dry_run`: counted, nothing done.",
      }),
      handle: async ({ accountId, body }, tx) => {
        const { filter: asked, rate_per_second, dry_run } = body;
        if (dry_run) {
          const matched = await countReplayable(tx, accountId, filterOf(asked), analysisRetentionMs);
          if (matched > REPLAY_DELIVERIES_MAX) throw tooMany();
          return { other: { dry_run, matched } };
        }
        const filter = filterOf(asked);
        const replay = await createReplay(tx, accountId, filter, asked, rate_per_second, analysisRetentionMs);
        if (replay === null) throw tooMany();
        return { body: replayBody(replay) };
      },
    }),
    read({
      key: "webhooks.replays.list",
      tag,
      summary: "List replays",
      description:
        "The account's replays with their progress, the newest first. `succeeded` and `failed` are as they were " +
        "when last counted: seconds ago for a young replay, up to 100 for a large one, a tenth of its age for an " +
        "old one. Reading one that is not large counts anew.",
      method: "GET",
      path,
      scope: "webhooks:replay",
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(Replay)),
      handle: async ({ accountId, query }) => {
        const belowId = cursors.read(query.cursor, accountId);
        const page = await listReplays(pool, accountId, belowId, query.limit);
        const next_cursor = page.nextBelowId === null ? null : cursors.write(page.nextBelowId, accountId);
        return { body: { items: page.replays.map(replayBody), next_cursor, total: page.total } };
      },
    }),
    read({
      key: "webhooks.replays.get",
      tag,
      summary: "Read a replay",
      description: "A replay with its progress.",
      method: "GET",
      path: `${path}/{replay_id}`,
      scope: "webhooks:replay",
      params,
      response: jsonResponse(200, Replay),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }) => {
        const replay = await findReplay(pool, accountId, params.replay_id);
        if (replay === null) throw problem("not_found");
        return { body: replayBody(replay) };
      },
    }),
    write({
      key: "webhooks.replays.cancel",
      tag,
      summary: "Cancel a replay",
      description:
        "Starts no more deliveries of the replay; those that it has started go on. One that has ended stays as it is.",
      method: "POST",
      path: `${path}/{replay_id}/cancel`,
      scope: "webhooks:replay",
      risk: "irreversible",
      mode: "async",
      idempotency: "key_required",
      params,
      response: jsonResponse(200, Replay),
      errors: ["not_found"],
      handle: async ({ accountId, params, problem }, tx) => {
        const replay = await cancelReplay(tx, accountId, params.replay_id);
        if (replay === null) throw problem("not_found");
        return { body: replayBody(replay) };
      },
    }),
  ];
}

function tooMany(): Problem {
  const most = REPLAY_DELIVERIES_MAX.toLocaleString("en");
  return invalidRequest(
    "body.filter",
    `More than ${most} deliveries fit: narrow it, to a shorter time for instance.`,
  );
}
