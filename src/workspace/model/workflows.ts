/** There is no other yet. */
export const WORKFLOW_STATUSES = ["ACTIVE"] as const;

/** `SPACE`: the members of its space have access, each by their role. There is no other yet. */
export const WORKFLOW_ACCESS_MODES = ["SPACE"] as const;

/** Until it is given another. */
export const FIRST_WORKFLOW_NAME = "Untitled";

export const SUMMARY_CHARS_MAX = 1_000;
export const CHANGE_NOTE_CHARS_MAX = 1_000;
