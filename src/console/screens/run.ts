import type { PublishedAnalysis } from "../../base/model/events.ts";
import { isUuid } from "../../base/model/formats.ts";
import type { DeliveredWorkflow, RunState, ShownNode, ShownRun } from "../../base/model/origins.ts";
import { Problem } from "../../http/problems.ts";
import type { Delivery } from "../../log/delivery-schema.ts";
import { type Html, html, type Part } from "../html.ts";
import { searchOf } from "../log-filters.ts";
import { type Column, copyButton, facts, number, plain, refuseUnless, sign, table } from "../parts.ts";
import { get, type View } from "../screen.ts";
import { awaitedOf, briefOf, durationText, inZone, momentOf } from "../times.ts";

const SIGNS: Readonly<Record<RunState, Html>> = {
  QUEUED: sign("pending", "○", "queued"),
  ACTIVE: sign("waiting", "○", "running"),
  WAITING: sign("pending", "◐", "waiting"),
  SUCCEEDED: sign("succeeded", "✓", "completed"),
  FAILED: sign("abandoned", "✕", "failed"),
  CANCELLED: sign("pending", "–", "cancelled"),
};

/** As its API: what is published is read by whoever reads analyses, and the rest by members of its space. */
const scopeOf = ({ isOfAccount }: View) => (isOfAccount ? "analyses:read" : "workflows:read");

/** A run of a workflow: what became of it, and of each of its nodes. */
export const runScreen = get("/runs/{run_id}", async (view) => {
  const { base, params } = view;
  const { run_id: id = "" } = params;
  refuseUnless(view, scopeOf(view));
  const run = isUuid(id) ? await view.findRun(id) : null;
  if (run === null) throw new Problem("not_found");
  const delivery = view.may("webhooks:read") ? run.delivery_id : null;
  return {
    title: run.workflow_name,
    up:
      delivery === null
        ? { href: `${base}/deliveries`, name: "Deliveries" }
        : { href: `${base}/deliveries/${delivery}`, name: "Delivery" },
    beside: SIGNS[run.status],
    main: html`${causeOf(view, run)}
${factsOf(view, run, delivery)}
${nodesOf(view, run)}`,
  };
});

/** Null: it has not failed. */
function causeOf({ session }: View, { status, error_message, node_runs, definition }: ShownRun): Html | null {
  if (status !== "FAILED") return null;
  const failed = node_runs.find((nodeRun) => nodeRun.status === "FAILED");
  const node = definition.nodes.find(({ id }) => id === failed?.node_id);
  return html`<section class="panel cause is-bad" aria-label="Why it failed">
<h2>${node === undefined ? "The run failed" : html`“${node.name}” failed`}</h2>
<p>${inZone(error_message ?? "What went wrong was erased.", session.timeZone)}</p></section>`;
}

function factsOf({ session, nowMs, base, may }: View, run: ShownRun, delivery: string | null): Html {
  const { id, version, created_at, started_at, completed_at, requested_by, workflow_id } = run;
  const log = `${base}/deliveries${searchOf({ workflow_id })}`;
  return facts([
    [started_at === null ? "Requested" : "Started", momentOf(started_at ?? created_at, session.timeZone)],
    ["Took", html`${tookText(run, nowMs)}${started_at !== null && completed_at === null && " so far"}`],
    ["Started by", requested_by.name],
    [
      "Workflow",
      html`version ${version.version}${may("webhooks:read") && html`, <a href="${log}">all deliveries</a>`}`,
    ],
    delivery !== null && [
      "Delivery",
      html`<a href="${base}/deliveries/${delivery}"><code>${delivery}</code></a>`,
    ],
    ["Run", html`<code>${id}</code> ${copyButton(id, "id")}`],
  ]);
}

/** A node of the workflow; null: the run has not reached it. */
type NodeRow = { readonly name: string; readonly kind: string; readonly run: ShownNode | null };

/** Those that were reached, in that order, and the others behind them. */
function nodesOf({ session, nowMs }: View, { node_runs: reached, definition: { nodes } }: ShownRun): Html {
  const { timeZone } = session;
  const rowOf = (id: string, run: ShownNode | null): NodeRow => ({
    ...nodes.find((node) => node.id === id)!,
    run,
  });
  const ahead = nodes.filter(({ id }) => reached.every(({ node_id }) => node_id !== id));
  const rows = [
    ...reached.map((nodeRun) => rowOf(nodeRun.node_id, nodeRun)),
    ...ahead.map(({ id }) => rowOf(id, null)),
  ];
  const told = (tell: (run: ShownNode) => Part) => (row: NodeRow) => (row.run === null ? "–" : tell(row.run));
  const columns: readonly Column<NodeRow>[] = [
    { name: "Status", label: null, cell: ({ run }) => (run === null ? NOT_REACHED : SIGNS[run.status]) },
    {
      name: "Node",
      label: null,
      cell: ({ name, kind }) =>
        html`<strong>${name}</strong> <span class="soft">${kind.replaceAll("_", " ")}</span>`,
    },
    {
      name: "Started",
      cell: told(({ started_at }) => (started_at === null ? "–" : briefOf(started_at, timeZone, nowMs))),
    },
    { name: "Took", isNumber: true, cell: told((run) => tookText(run, nowMs)) },
    { name: "Items in", isNumber: true, cell: told(({ input_count }) => number(input_count)) },
    { name: "Items out", isNumber: true, cell: told(outText) },
  ];
  return table("nodes", columns, plain(rows), {
    idOf: (row) => `n-${rows.indexOf(row) + 1}`,
    below: ({ run }) => run && whatIs(run, timeZone, nowMs),
  });
}

const NOT_REACHED = sign("pending", "·", "not reached");

/** Why a node failed, or what it waits for; null: there is nothing to say. */
function whatIs(
  { error_message, wait, attempt, completed_at }: ShownNode,
  timeZone: string | null,
  nowMs: number,
) {
  if (error_message !== null) return html`<span class="bad">${inZone(error_message, timeZone)}</span>`;
  if (wait !== null) {
    const what = wait.analysis_id !== undefined && html` for the analysis <code>${wait.analysis_id}</code>,`;
    return html`Waits${what} until ${awaitedOf(wait.until, timeZone, nowMs)}.`;
  }
  if (attempt > 1 && completed_at === null) return html`It is tried again: attempt ${attempt}.`;
  return null;
}

function outText({ output_counts: { items, errors } }: ShownNode): Part {
  return html`${number(items)}${errors > 0 && html` <span class="bad">(${number(errors)} with an error)</span>`}`;
}

/** Of a run, or of a node, so far or from start to end. */
function tookText(
  { started_at, completed_at }: Pick<ShownNode, "started_at" | "completed_at">,
  nowMs: number,
): string {
  if (started_at === null) return "–";
  const endMs = completed_at === null ? nowMs : Date.parse(completed_at);
  return durationText(Math.max(0, endMs - Date.parse(started_at)));
}

/** A workflow's name, which leads to its run for whoever may see that. */
export function runLink(view: View, { name, runId }: Pick<DeliveredWorkflow, "name" | "runId">): Html {
  if (!view.may(scopeOf(view))) return html`<strong>${name}</strong>`;
  return html`<a href="${view.base}/runs/${runId}"><strong>${name}</strong></a>`;
}

/**
 * The workflows whose runs have published these deliveries, by their ids, in one statement. A run publishes under its
 * own id, so that the analyses' lead to runs without the log. Whoever may read analyses may know what made them.
 */
export async function workflowNamesOf(
  view: View,
  deliveries: readonly Pick<Delivery, "id" | "analysis_id">[],
): Promise<ReadonlyMap<string, DeliveredWorkflow>> {
  if (!view.may("analyses:read")) return new Map();
  const published = deliveries.map(({ id, analysis_id }): PublishedAnalysis => {
    return { deliveryId: id, analysisId: analysis_id };
  });
  return await view.findWorkflows(published);
}
