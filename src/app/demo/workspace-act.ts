import { createHash } from "node:crypto";
import type { DemoApi } from "./api.ts";
import type { DemoEnvironment } from "./environment.ts";
import type { DemoOutput } from "./output.ts";
import { ID_COLUMNS } from "./receivers.ts";

/** The fields of a run in the API that the demo uses. */
type ApiRun = {
  readonly id: string;
  readonly status: "QUEUED" | "ACTIVE" | "WAITING" | "SUCCEEDED" | "FAILED" | "CANCELLED";
  readonly error_message: string | null;
  readonly node_runs: readonly {
    readonly id: string;
    readonly node_name: string;
    readonly status: string;
    readonly output_counts: Readonly<Record<string, number>>;
    readonly completed_at: string | null;
  }[];
};

const ENDED: readonly ApiRun["status"][] = ["SUCCEEDED", "FAILED", "CANCELLED"];

const DOCUMENTS = {
  "offer.md": "# Offer\n\nWe offer to deliver what you asked for, when you asked for it, and not twice.\n",
  "terms.md": "# Terms\n\nPayment within thirty days. The goods remain ours until they are paid for.\n",
  "carta.md": "# Carta\n\nMuchas gracias por su oferta; la hemos leído y la aceptamos con mucho gusto.\n",
};

/** The documents of the space's top, each of them analysed. */
const DEFINITION = {
  nodes: [
    { id: "start", kind: "manual_trigger", name: "Start", parameters: {} },
    { id: "all", kind: "documents", name: "Documents", parameters: { folder_id: null } },
    { id: "analysis", kind: "analyze", name: "Analysis", parameters: {} },
  ],
  edges: [
    { from: "start", to: "all" },
    { from: "all", to: "analysis" },
  ],
};

/**
 * A pipeline of our own: documents in a space, and a workflow whose run ends in a webhook. Returns what did not go as
 * expected, in sentences.
 * @param api acts for the account
 * @param userApi acts for a user of it
 */
export async function playWorkspace(
  { receivers }: DemoEnvironment,
  api: DemoApi,
  userApi: DemoApi,
  output: DemoOutput,
): Promise<readonly string[]> {
  output.heading(
    "A workspace: a space with documents, a workflow that analyzes them, and the webhook of its run",
  );
  const workflowId = await prepare(userApi, output);
  const { id: runId } = await userApi.ask<ApiRun>(`POST /workflows/${workflowId}/runs`, {});
  output.line("run_started", { run_id: runId }, `${"run".padEnd(ID_COLUMNS)}  ${runId} has started`);
  const run = await watchRun(userApi, runId, output);
  if (run.status !== "SUCCEEDED") return [`The run ended ${run.status}: ${run.error_message}`];

  const faults: string[] = [];
  // The run has published in the transaction that ended it.
  const published = (await api.deliveries()).filter(({ analysis_id }) => analysis_id === runId);
  const [delivery] = await api.untilEnded(published.map(({ id }) => id));
  const received = receivers.received.get(delivery?.id ?? "");
  if (delivery?.status !== "succeeded" || received?.accepted !== 1 || received.verified !== 1) {
    const fate = delivery?.status ?? "missing";
    faults.push(
      `The webhook of run ${runId} is ${fate}; it did not arrive exactly once with a valid signature.`,
    );
  }
  const { status, text } = await api.send(`GET /analyses/${runId}`);
  if (status !== 200 || !text.includes(workflowId)) {
    faults.push(`GET /v1/analyses/${runId} answered ${status}, or does not name its workflow.`);
  }
  return faults;
}

/** Makes the space, its documents and the workflow. Returns the id of the workflow, which is published. */
async function prepare(api: DemoApi, output: DemoOutput): Promise<string> {
  const { id: spaceId } = await api.ask<{ id: string }>("POST /spaces", { name: "Tenders" });
  for (const [file_name, text] of Object.entries(DOCUMENTS)) {
    const content = { content_type: "text/markdown", file_size: Buffer.byteLength(text) };
    const document = { space_id: spaceId, file_name, ...content };
    const { id } = await api.ask<{ id: string }>("POST /documents", document);
    const digest = createHash("sha256").update(text).digest("base64");
    await api.ask(`PUT /documents/${id}/content`, text, {
      "content-type": content.content_type,
      "content-digest": `sha-256=:${digest}:`,
    });
  }
  const file_names = Object.keys(DOCUMENTS);
  const stored = `${"space".padEnd(ID_COLUMNS)}  “Tenders”, with ${file_names.join(", ")}`;
  output.line("documents_uploaded", { space_id: spaceId, file_names }, stored);

  type Draft = { readonly id: string; readonly draft_revision: number };
  const created = await api.ask<Draft>("POST /workflows", { space_id: spaceId });
  const path = `/workflows/${created.id}`;
  await api.ask(`PATCH ${path}`, { name: "Read tenders" });
  const draft = { revision: created.draft_revision, definition: DEFINITION };
  const { draft_revision: revision } = await api.ask<Draft>(`PUT ${path}/draft`, draft);
  await api.ask(`POST ${path}/publish`, { revision });
  const nodes = DEFINITION.nodes.map(({ kind }) => kind).join(" → ");
  const text = `${"workflow".padEnd(ID_COLUMNS)}  “Read tenders”: ${nodes}`;
  output.line("workflow_published", { workflow_id: created.id }, text);
  return created.id;
}

/** Prints each node that has ended. Resolves when the run has. */
async function watchRun(api: DemoApi, run_id: string, output: DemoOutput): Promise<ApiRun> {
  const shown = new Set<string>();
  return await api.poll(
    async () => {
      const run = await api.ask<ApiRun>(`GET /workflow-runs/${run_id}`);
      for (const { id, node_name, status, output_counts, completed_at } of run.node_runs) {
        if (completed_at === null || shown.has(id)) continue;
        shown.add(id);
        const items = Object.values(output_counts).reduce((sum, count) => sum + count, 0);
        const text = `${node_name.padEnd(ID_COLUMNS)}  ${status}, ${items} ${items === 1 ? "item" : "items"}`;
        output.result("node_ended", { run_id, node_name, status, items }, status === "SUCCEEDED", text);
      }
      return run;
    },
    ({ status }) => ENDED.includes(status),
  );
}
