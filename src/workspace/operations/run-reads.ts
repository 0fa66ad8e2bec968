import { z } from "zod";
import { PAGE_ITEMS_MAX } from "../../api/limits.ts";
import type { Operation } from "../../api/operation.ts";
import { jsonResponse } from "../../api/operation-io.ts";
import { createCursors, pageOf, pageQuery } from "../../api/pagination.ts";
import { INTEGER_MAX, id } from "../../operations/fields.ts";
import { ITEM_BYTES_PER_READ, readItems } from "../store/node-items.ts";
import { listNodeRuns } from "../store/node-runs.ts";
import { readRunEvents } from "../store/run-events.ts";
import { findRun, isRunSeen } from "../store/runs.ts";
import { NodeItem, nodeItemBody, RunEvents, runEventsBody } from "./run-schema.ts";
import { read, userOf, type WorkspaceDependencies } from "./workspace-operation.ts";

const tag = "Workflow runs";
const path = "/v1/workflow-runs/{run_id}";
const params = z.strictObject({ run_id: id });

/** What goes on in a run: both grow at their end alone, so that whoever reads on meets everything once. */
export function runReadOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  const cursors = createCursors(z.int().min(0).max(INTEGER_MAX));
  return [
    read({
      key: "workflows.runs.node_items",
      tag,
      summary: "List a node's items",
      description:
        "What a node of the run has handed on so far, in its order, and fewer than asked for where they are large. A " +
        "run that goes on adds behind what was read; one that failed as too large, or because the account's storage " +
        "was full, keeps nothing. 404 if the run has no such node, or you are not a member of its space.",
      method: "GET",
      path: `${path}/nodes/{node_id}/items`,
      scope: "workflows:read",
      needsUser: true,
      params: params.extend({ node_id: z.string().describe("As in the definition.") }),
      query: z.strictObject(pageQuery),
      response: jsonResponse(200, pageOf(NodeItem)),
      errors: ["not_found"],
      handle: async (request) => {
        const { cursor, limit } = request.query;
        const { run_id: runId, node_id: nodeId } = request.params;
        const user = userOf(request);
        const { accountId } = user;
        const filter = [user, runId, nodeId];
        const after = cursors.read(cursor, filter) ?? -1;
        const run = await findRun(pool, user, runId);
        if (!run?.definition.nodes.some((node) => node.id === nodeId)) throw request.problem("not_found");
        const nodeRun = (await listNodeRuns(pool, accountId, runId)).find((one) => one.nodeId === nodeId);
        if (nodeRun === undefined) return { body: { items: [], next_cursor: null, total: 0 } };
        const { sequence, itemCount } = nodeRun;
        const ofNode = { accountId, runId, sequence };
        const { items: found } = await readItems(pool, ofNode, after, limit + 1, ITEM_BYTES_PER_READ);
        const items = found.slice(0, limit);
        // A run that failed as too large has none, whatever it has handed on.
        const isEmpty = after === -1 && found.length === 0;
        const total = isEmpty ? 0 : Math.max(itemCount, (found.at(-1)?.index ?? -1) + 1);
        const last = items.at(-1)?.index ?? total;
        // Their indices have no gaps.
        const page = { items, next: last + 1 < total ? last : null, total };
        return { body: cursors.pageBody(page, filter, (item) => nodeItemBody(nodeId, item)) };
      },
    }),
    read({
      key: "workflows.runs.events",
      tag,
      summary: "List a run's events",
      description:
        "What has happened in the run after a cursor, in its order; none when there is nothing new. 404 if you are " +
        "not a member of its space.",
      method: "GET",
      path: `${path}/events`,
      scope: "workflows:read",
      needsUser: true,
      params,
      query: z.strictObject({
        after: z
          .int()
          .min(0)
          .max(INTEGER_MAX)
          .default(0)
          .describe("`events_cursor` of the run or of the answer before; absent: from the first."),
        limit: z
          .int()
          .min(1)
          .max(PAGE_ITEMS_MAX)
          .default(PAGE_ITEMS_MAX)
          .describe("Maximum number of events."),
      }),
      response: jsonResponse(200, RunEvents),
      errors: ["not_found"],
      handle: async (request) => {
        const { after, limit } = request.query;
        const { run_id: runId } = request.params;
        const user = userOf(request);
        if (!(await isRunSeen(pool, user, runId))) throw request.problem("not_found");
        return { body: runEventsBody(await readRunEvents(pool, user.accountId, runId, after, limit), after) };
      },
    }),
  ];
}
