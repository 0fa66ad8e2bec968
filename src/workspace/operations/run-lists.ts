import { z } from "zod";
import { INTEGER_MAX, id, moment } from "../../api/fields.ts";
import { idFloor } from "../../base/database/partitions.ts";
import { PAGE_ITEMS_MAX } from "../../http/limits.ts";
import { bytesResponse, jsonResponse, type Operation } from "../../http/operation.ts";
import { createCursors, type PageBody, pageOf, pageQuery } from "../../http/pagination.ts";
import { momentOf } from "../../log/delivery-filter-api.ts";
import { ListedWorkflowRun, NodeItem, RUN_CONSTANTS, RunEvents } from "../model/runs.ts";
import { RUN_STATUSES } from "../model/workflows.ts";
import { listNodeRuns, readItems, type StoredItem } from "../store/node-runs.ts";
import { readRunEvents } from "../store/run-events.ts";
import { findRun, type ListedRun, listRuns, listWorkflowRuns, type RunFilter } from "../store/runs.ts";
import { isMemberOf } from "../store/spaces.ts";
import { operationsOf, type WorkspaceDependencies } from "./workspace-operation.ts";

const filters = {
  status: z
    .array(z.enum(RUN_STATUSES))
    .max(RUN_STATUSES.length)
    .optional()
    .describe("One of these. Repeat the parameter for several."),
  created_after: moment.optional().describe("Started at this moment or later."),
  created_before: moment.optional().describe("Started before this moment."),
} as const;

type Asked = { readonly [Name in keyof typeof filters]: z.output<(typeof filters)[Name]> };

function filterOf({ status, created_after, created_before }: Asked, spaceId: string | null): RunFilter {
  const idOf = (time: string | undefined) => (time === undefined ? null : idFloor(momentOf(time).getTime()));
  return [status ?? null, idOf(created_after), idOf(created_before), spaceId];
}

const told = {
  scope: "workflows:read",
  item: ListedWorkflowRun,
  position: id,
  isCapped: true,
  bodyOf: (run: ListedRun): ListedWorkflowRun => ({ ...run, ...RUN_CONSTANTS }),
} as const;

/** On a page, unless its first item alone has more: it is read for whoever asks, beside all others' requests. */
const ITEM_BYTES_PER_PAGE = 262_144;

/** Items go as the texts that are stored: reading megabytes and writing them again keeps the process. */
function pageBytes({ items, ...rest }: PageBody<string>) {
  return { bytes: Buffer.from(`{"items":[${items.join()}],${JSON.stringify(rest).slice(1)}`) };
}

const { list, read } = operationsOf("Workflow runs");
const path = "/v1/workflow-runs";
const params = z.strictObject({ run_id: id });

/** Runs by where, how and when they were started, and what is in each. */
export function runListOperations({ pool }: Pick<WorkspaceDependencies, "pool">): readonly Operation[] {
  const cursors = createCursors(z.int().min(0).max(INTEGER_MAX));
  return [
    list({
      ...told,
      key: "workflows.runs.list",
      summary: "List a workflow's runs",
      description:
        "The runs of a workflow that are still kept, newest first, without their inputs, definitions and nodes: get " +
        "one by its id for these. 404 if you are not a member of its space.",
      path: "/v1/workflows/{workflow_id}/runs",
      params: z.strictObject({ workflow_id: id }),
      filters,
      readPage: (user, { workflow_id, ...asked }, below, limit) =>
        listWorkflowRuns(pool, user, [...filterOf(asked, null), workflow_id], below, limit),
    }),
    list({
      ...told,
      key: "workflows.runs.list_all",
      summary: "List runs of all workflows",
      description:
        "The runs in all spaces that you are a member of, newest first, as those of one workflow are listed; also of " +
        "workflows that are in the bin. 404 for a space or workflow of which you are not told.",
      path,
      filters: { ...filters, workflow_id: id.optional(), space_id: id.optional() },
      readPage: (user, { workflow_id, space_id = null, ...asked }, below, limit) => {
        const filter = filterOf(asked, space_id);
        return workflow_id === undefined
          ? listRuns(pool, user, filter, below, limit)
          : listWorkflowRuns(pool, user, [...filter, workflow_id], below, limit);
      },
    }),
    // Both grow at their end alone, so that whoever reads on meets everything once.
    read({
      key: "workflows.runs.node_items",
      summary: "List a node's items",
      description:
        "The items that a node of the run has passed on so far, in order; fewer than asked for if they are large. A " +
        "run in progress adds more after those; one that failed because it was too large, or because the account's " +
        "storage was full, keeps nothing. 404 if the run has no such node, or you are not a member of its space.",
      path: `${path}/{run_id}/nodes/{node_id}/items`,
      scope: "workflows:read",
      params: params.extend({ node_id: z.string().describe("As in the definition.") }),
      query: z.strictObject(pageQuery),
      response: bytesResponse({ mediaType: "application/json", documentedAs: pageOf(NodeItem) }),
      errors: ["not_found"],
      handle: async (request) => {
        const { user, accountId } = request;
        const { cursor, limit } = request.query;
        const { run_id: runId, node_id: nodeId } = request.params;
        const filter = [user, runId, nodeId];
        const after = cursors.read(cursor, filter) ?? -1;
        const run = await findRun(pool, user, runId);
        if (!run?.definition.nodes.some((node) => node.id === nodeId)) throw request.problem("not_found");
        const nodeRun = (await listNodeRuns(pool, accountId, runId)).find((one) => one.node_id === nodeId);
        if (nodeRun === undefined) return pageBytes({ items: [], next_cursor: null, total: 0 });
        const { sequence, output_counts: counts } = nodeRun;
        const ofNode = { accountId, runId, sequence };
        const { items: found, bytes } = await readItems(pool, ofNode, after, limit + 1, ITEM_BYTES_PER_PAGE);
        const fitting = bytes > ITEM_BYTES_PER_PAGE ? Math.max(found.length - 1, 1) : found.length;
        const items = found.slice(0, Math.min(fitting, limit));
        // A run that failed as too large has none, whatever it has handed on.
        const isEmpty = after === -1 && found.length === 0;
        const total = isEmpty ? 0 : Math.max(counts.items, (found.at(-1)?.index ?? -1) + 1);
        const last = items.at(-1)?.index ?? total;
        // Their indices have no gaps.
        const page = { items, next: last + 1 < total ? last : null, total };
        const itemOf = ({ index, item }: StoredItem) =>
          `{"node_id":${JSON.stringify(nodeId)},"index":${index},"item":${item}}`;
        return pageBytes(cursors.pageBody(page, filter, itemOf));
      },
    }),
    read({
      key: "workflows.runs.events",
      summary: "List a run's events",
      description:
        "What has happened in the run after a cursor, in order; none if there is nothing new. 404 if you are " +
        "not a member of its space.",
      path: `${path}/{run_id}/events`,
      scope: "workflows:read",
      params,
      query: z.strictObject({
        after: z
          .int()
          .min(0)
          .max(INTEGER_MAX)
          .default(0)
          .describe("`events_cursor` of the run or of the previous answer; absent: from the first."),
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
        const { user } = request;
        if (!(await isMemberOf(pool, user, "run_id", runId))) throw request.problem("not_found");
        const items = await readRunEvents(pool, user.accountId, runId, after, limit);
        return { body: { items: [...items], events_cursor: items.at(-1)?.sequence ?? after } };
      },
    }),
  ];
}
