/** Of a run, and of each node in it. The last three are its end. */
export const RUN_STATUSES = ["QUEUED", "ACTIVE", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED"] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** Of those that go on. */
export const UNFINISHED_STATUSES = ["QUEUED", "ACTIVE", "WAITING"] as const satisfies readonly RunStatus[];

export function isUnfinished(status: RunStatus): boolean {
  return UNFINISHED_STATUSES.some((one) => one === status);
}

/** What happens to a run and its nodes, as its events tell. */
export const RUN_EVENT_KINDS = [
  "run.created",
  "run.started",
  "run.waiting",
  "run.succeeded",
  "run.failed",
  "run.cancelled",
  "node.started",
  "node.resumed",
  "node.progressed",
  "node.waiting",
  "node.retried",
  "node.succeeded",
  "node.failed",
  "node.cancelled",
] as const;
export type RunEventKind = (typeof RUN_EVENT_KINDS)[number];

/** Why a node, and with it its run, has failed. */
export const NODE_ERROR_CODES = [
  "folder_not_found",
  "run_too_large",
  "attempts_exhausted",
  "external_analysis_failed",
  "external_analysis_missing",
] as const;
export type NodeErrorCode = (typeof NODE_ERROR_CODES)[number];

/** Why a run has failed. */
export const RUN_ERROR_CODES = [...NODE_ERROR_CODES, "publish_refused"] as const;
export type RunErrorCode = (typeof RUN_ERROR_CODES)[number];

/** Why an item has no analysis. */
export const ITEM_ERROR_CODES = [
  "document_not_found",
  "document_not_uploaded",
  "document_gone",
  "document_too_large",
] as const;
export type ItemErrorCode = (typeof ITEM_ERROR_CODES)[number];

/** Of an account, at a time: each may hold what `RUN_ITEM_BYTES_MAX` allows, and they take turns. */
export const UNFINISHED_RUNS_MAX = 1_000;

/** What all nodes of one run hand on together. Joined branches multiply items: a run must not fill the disk. */
export const RUN_ITEMS_MAX = 100_000;
export const RUN_ITEM_BYTES_MAX = 64 * 1_024 ** 2;

/** Times that a step is tried; with their waits a quarter of an hour or more: an object store restarts in less. */
export const STEP_ATTEMPTS_MAX = 15;

/** What a webhook has room for besides the rest of its analysis. */
export const RUN_SUMMARY_BYTES_MAX = 65_536;
