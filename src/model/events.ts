/** Each event with the analysis status it reports. */
export const STATUS_OF_EVENT = {
  "analysis.succeeded": "succeeded",
  "analysis.failed": "failed",
} as const;

/** `event` in the body, in rows and in filters. */
export type EventName = keyof typeof STATUS_OF_EVENT;

type AnalysisStatus = (typeof STATUS_OF_EVENT)[EventName];

export const ANALYSIS_STATUSES: readonly AnalysisStatus[] = Object.values(STATUS_OF_EVENT);

export const EVENTS = Object.keys(STATUS_OF_EVENT) as readonly EventName[];
