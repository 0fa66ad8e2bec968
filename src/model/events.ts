/** What a webhook tells of: the body's `event`, the row's value and the filter's. */
export const EVENTS = ["analysis.succeeded", "analysis.failed"] as const;

export type EventName = (typeof EVENTS)[number];
