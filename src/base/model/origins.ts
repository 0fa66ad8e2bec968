import type { AnalysisOrigin, PublishedAnalysis } from "./events.ts";
import type { Reader } from "./reader.ts";

/** Of a run of a workflow, and of each node in it. The last three are its end. */
export type RunState = "QUEUED" | "ACTIVE" | "WAITING" | "SUCCEEDED" | "FAILED" | "CANCELLED";

/** A run of a workflow: of what the API tells of one, what the console shows. */
export type ShownRun = {
  readonly id: string;
  readonly workflow_id: string;
  readonly workflow_name: string;
  readonly version: { readonly version: number };
  readonly status: RunState;
  /** Null: nothing went wrong, or what did was erased. */
  readonly error_message: string | null;
  readonly requested_by: { readonly name: string };
  readonly created_at: string;
  readonly started_at: string | null;
  readonly completed_at: string | null;
  readonly delivery_id: string | null;
  readonly definition: {
    readonly nodes: readonly { readonly id: string; readonly name: string; readonly kind: string }[];
  };
  /** Those that it has reached, in that order. */
  readonly node_runs: readonly ShownNode[];
};

export type ShownNode = {
  readonly node_id: string;
  readonly status: RunState;
  readonly attempt: number;
  readonly input_count: number;
  readonly output_counts: { readonly items: number; readonly errors: number };
  readonly error_message: string | null;
  readonly started_at: string | null;
  readonly completed_at: string | null;
  readonly wait: { readonly until: string; readonly analysis_id?: string } | null;
};

/** The workflow whose run has published a delivery. */
export type DeliveredWorkflow = { readonly id: string; readonly name: string; readonly runId: string };

/** Who reads an account: one of its users, or, null, whoever reads all of it. */
export type AccountReader = { readonly accountId: string; readonly userId: string | null };

/** What an area of the service says of analyses that it has made itself. */
export type Origins = {
  /** Null: nobody here knows what made it. */
  findOrigin(accountId: string, published: PublishedAnalysis): Promise<AnalysisOrigin | null>;
  /**
   * For whoever reads all of the account, as much of it as is published: null before that. A user is answered by the
   * operation `workflows.runs.get`.
   */
  findRun(accountId: string, runId: string): Promise<ShownRun | null>;
  /** By the ids of their deliveries, in one statement; of those that no run has published, nothing. */
  findWorkflows(
    reader: AccountReader,
    published: readonly PublishedAnalysis[],
  ): Promise<ReadonlyMap<string, DeliveredWorkflow>>;
};

/** Ids of a workflow's newest deliveries; none, if the reader may not see them. */
export type FindWorkflowDeliveries = (
  reader: Reader,
  workflowId: string,
  countMax: number,
) => Promise<readonly string[]>;
