/** There is no other yet. */
export const WORKFLOW_STATUSES = ["ACTIVE"] as const;

/** `SPACE`: the members of its space have access, each by their role. There is no other yet. */
export const WORKFLOW_ACCESS_MODES = ["SPACE"] as const;

/** Until it is given another. */
export const FIRST_WORKFLOW_NAME = "Untitled";

export const SUMMARY_CHARS_MAX = 1_000;
export const CHANGE_NOTE_CHARS_MAX = 1_000;

/** Of a run, and of each node in it. The last three are its end. */
export const RUN_STATUSES = ["QUEUED", "ACTIVE", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED"] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];

/** Of those that go on. */
const UNFINISHED_STATUSES = ["QUEUED", "ACTIVE", "WAITING"] as const satisfies readonly RunStatus[];

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
  "storage_full",
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

/** Of an account, at a time: they take turns. What all its runs hold, ended ones included, has a limit of its own. */
export const UNFINISHED_RUNS_MAX = 1_000;

/** What all nodes of one run hand on together. */
export const RUN_ITEMS_MAX = 100_000;
const RUN_ITEM_BYTES_MAX = 64 * 1_024 ** 2;
const RUN_ITEM_BYTES_MIN = 4 * 1_024 ** 2;
const ITEM_BYTES_PER_BROUGHT = 64;

/**
 * What they have together may be so many bytes, when the run's sources (its input, documents, analyses of others) have
 * brought it `broughtBytes`. A document's item is 200 bytes, and with an analysis 1 to 3 KB: that is room for several
 * nodes. Joined branches multiply what came in, 60 KB to gigabytes: that is no work that anybody wants.
 */
export function runItemBytesMax(broughtBytes: number): number {
  return Math.min(RUN_ITEM_BYTES_MIN + ITEM_BYTES_PER_BROUGHT * broughtBytes, RUN_ITEM_BYTES_MAX);
}

/** Of runs that failed for these, no items are kept: there are many, and none was of use. */
export const ITEMS_DROPPED_FOR: readonly NodeErrorCode[] = ["run_too_large", "storage_full"];

/** Times that a step is tried; with their waits a quarter of an hour or more: an object store restarts in less. */
export const STEP_ATTEMPTS_MAX = 15;

/** What a webhook has room for besides the rest of its analysis. */
export const RUN_SUMMARY_BYTES_MAX = 65_536;
