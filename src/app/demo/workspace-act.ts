import { createHash, randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { ApiClient, ApiDelivery, DeliveryWatch } from "./api-client.ts";
import type { DemoEnvironment } from "./environment.ts";
import type { DemoOutput } from "./output.ts";

/** The fields of a run in the API that the demo uses. */
export type ApiRun = {
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

export type WorkspaceClient = {
  /** Returns the space's id. */
  createSpace(name: string): Promise<string>;
  /** Creates the document and uploads its text. */
  addDocument(spaceId: string, fileName: string, text: string): Promise<void>;
  /** Creates, drafts and publishes it. Returns the workflow's id. */
  publishWorkflow(spaceId: string, name: string, definition: unknown): Promise<string>;
  /** Returns the run's id. */
  startRun(workflowId: string): Promise<string>;
  run(runId: string): Promise<ApiRun>;
};

type Fields = Readonly<Record<string, unknown>>;

/** Uses the API as a user's program does: over HTTP, with a key that acts for the user. */
function createWorkspaceClient(url: string, key: string, signal: AbortSignal): WorkspaceClient {
  async function send(method: string, path: string, body: string, headers: Record<string, string>) {
    const response = await fetch(`${url}/v1${path}`, {
      method,
      headers: { authorization: `Bearer ${key}`, "idempotency-key": randomUUID(), ...headers },
      ...(method !== "GET" && { body }),
      signal,
    });
    if (response.ok) return (await response.json()) as Fields;
    throw new Error(`The API answered ${response.status} to ${method} ${path}: ${await response.text()}`);
  }

  const write = (method: string, path: string, fields: Fields) =>
    send(method, path, JSON.stringify(fields), { "content-type": "application/json" });

  return {
    createSpace: async (name) => String((await write("POST", "/spaces", { name })).id),
    addDocument: async (space_id, file_name, text) => {
      const content_type = "text/markdown";
      const file_size = Buffer.byteLength(text);
      const { id } = await write("POST", "/documents", { space_id, file_name, content_type, file_size });
      const digest = createHash("sha256").update(text).digest("base64");
      await send("PUT", `/documents/${id}/content`, text, {
        "content-type": content_type,
        "content-digest": `sha-256=:${digest}:`,
      });
    },
    publishWorkflow: async (space_id, name, definition) => {
      const { id, draft_revision } = await write("POST", "/workflows", { space_id });
      await write("PATCH", `/workflows/${id}`, { name });
      const draft = { revision: draft_revision, definition };
      const { draft_revision: revision } = await write("PUT", `/workflows/${id}/draft`, draft);
      await write("POST", `/workflows/${id}/publish`, { revision });
      return String(id);
    },
    startRun: async (workflowId) => String((await write("POST", `/workflows/${workflowId}/runs`, {})).id),
    run: async (runId) => (await send("GET", `/workflow-runs/${runId}`, "", {})) as unknown as ApiRun,
  };
}

const POLL_EVERY_MS = 100;
const COLUMNS = 14;

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

const ENDED: ReadonlySet<ApiRun["status"]> = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

export type WorkspaceAct = {
  readonly environment: DemoEnvironment;
  readonly output: DemoOutput;
  /** In the name of the account. */
  readonly api: ApiClient;
  readonly watch: DeliveryWatch;
  readonly signal: AbortSignal;
};

export type WorkspaceResult = {
  /** Of the run's webhook; null: there was none. */
  readonly delivery: ApiDelivery | null;
  /** What did not go as expected, in sentences. */
  readonly faults: readonly string[];
};

/** A pipeline of our own: documents in a space, and a workflow whose run ends in a webhook. */
export async function playWorkspace(act: WorkspaceAct): Promise<WorkspaceResult> {
  const { environment, output, signal } = act;
  output.heading(
    "A workspace: a space with documents, a workflow that analyses them, and the webhook of its run",
  );
  const workspace = createWorkspaceClient(environment.apiUrl, environment.userKey, signal);
  const workflowId = await prepare(workspace, output);
  const runId = await workspace.startRun(workflowId);
  output.line("run_started", { run_id: runId }, `${"run".padEnd(COLUMNS)}  ${runId} has started`);
  const run = await watchRun(workspace, runId, act);
  if (run.status !== "SUCCEEDED") {
    return { delivery: null, faults: [`The run ended ${run.status}: ${run.error_message}`] };
  }
  const [delivery] = await act.watch.untilEnded([await findDelivery(act, runId)]);
  const faults = [
    ...(await faultsInPolling(act.api, runId, workflowId)),
    ...faultsAtReceiver(act, delivery!),
  ];
  return { delivery: delivery!, faults };
}

/** Returns the id of the published workflow. */
async function prepare(workspace: WorkspaceClient, output: DemoOutput): Promise<string> {
  const spaceId = await workspace.createSpace("Tenders");
  for (const [fileName, text] of Object.entries(DOCUMENTS)) {
    await workspace.addDocument(spaceId, fileName, text);
  }
  const names = Object.keys(DOCUMENTS);
  const stored = `${"space".padEnd(COLUMNS)}  “Tenders”, with ${names.join(", ")}`;
  output.line("documents_uploaded", { space_id: spaceId, file_names: names }, stored);
  const workflowId = await workspace.publishWorkflow(spaceId, "Read tenders", DEFINITION);
  const path = DEFINITION.nodes.map(({ kind }) => kind).join(" → ");
  const published = `${"workflow".padEnd(COLUMNS)}  “Read tenders”: ${path}`;
  output.line("workflow_published", { workflow_id: workflowId }, published);
  return workflowId;
}

/** Prints each node that has ended. Resolves when the run has. */
async function watchRun(
  workspace: WorkspaceClient,
  runId: string,
  { output, signal }: WorkspaceAct,
): Promise<ApiRun> {
  const shown = new Set<string>();
  for (;;) {
    const run = await workspace.run(runId);
    for (const { id, node_name, status, output_counts, completed_at } of run.node_runs) {
      if (completed_at === null || shown.has(id)) continue;
      shown.add(id);
      const items = Object.values(output_counts).reduce((sum, count) => sum + count, 0);
      const mark = status === "SUCCEEDED" ? output.green("✓") : output.red("✗");
      const text = `${mark} ${node_name.padEnd(COLUMNS)}  ${status}, ${items} ${items === 1 ? "item" : "items"}`;
      output.line("node_ended", { run_id: runId, node_name, status, items }, text, Date.parse(completed_at));
    }
    if (ENDED.has(run.status)) return run;
    await delay(POLL_EVERY_MS, undefined, { signal });
  }
}

/** The run has published in the transaction that ended it, so there is one. */
async function findDelivery({ api }: WorkspaceAct, runId: string): Promise<string> {
  const delivery = (await api.deliveries()).find(({ analysis_id }) => analysis_id === runId);
  if (delivery === undefined) throw new Error(`The run ${runId} has succeeded, but nothing was published.`);
  return delivery.id;
}

async function faultsInPolling(api: ApiClient, runId: string, workflowId: string): Promise<string[]> {
  const { status, text } = await api.analysis(runId);
  const faults = status === 200 ? [] : [`GET /v1/analyses/${runId} answered ${status}.`];
  if (!text.includes(workflowId)) faults.push(`The analysis ${runId} does not name its workflow.`);
  return faults;
}

function faultsAtReceiver(
  { environment: { receivers } }: WorkspaceAct,
  { id, analysis_id: runId, status }: ApiDelivery,
): string[] {
  const received = receivers.received.get(id);
  const isRight = received?.accepted === 1 && received.verified === 1 && received.analysisId === runId;
  if (isRight && status === "succeeded") return [];
  return [`The webhook of run ${runId} is ${status}; it did not arrive once, with a valid signature.`];
}
