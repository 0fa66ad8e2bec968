import { createHash, randomUUID } from "node:crypto";

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
export function createWorkspaceClient(url: string, key: string, signal: AbortSignal): WorkspaceClient {
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
