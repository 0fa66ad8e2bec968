/** There is no other yet. */
export const WORKFLOW_STATUSES = ["ACTIVE"] as const;
