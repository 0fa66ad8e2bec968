/** Each event with the analysis status it reports. */
export const STATUS_OF_EVENT = {
  "analysis.succeeded": "succeeded",
  "analysis.failed": "failed",
} as const;

/** `event` in the body, in rows and in filters. */
export type EventName = keyof typeof STATUS_OF_EVENT;

export const ANALYSIS_STATUSES: readonly (typeof STATUS_OF_EVENT)[EventName][] =
  Object.values(STATUS_OF_EVENT);

export const EVENTS = Object.keys(STATUS_OF_EVENT) as readonly EventName[];

/** Behind a consumer's place; more are not counted. Behind all names of an account they are 100,000 rows. */
export const EVENTS_BEHIND_COUNTED_MAX = 1_000;

/** What made an analysis, where a part of this service did. */
export type AnalysisOrigin = {
  /** For people, such as the workflow's name. */
  readonly name: string;
  /** Of the run that made it. */
  readonly runId: string;
  /** In the order in which they were taken. */
  readonly steps: readonly OriginStep[];
};

export type OriginStep = {
  readonly name: string;
  readonly hasFailed: boolean;
  /** That it handed on. */
  readonly itemCount: number;
};

/** Which analysis it is about. Its id is the publisher's: only with its delivery it is no other. */
export type PublishedAnalysis = { readonly analysisId: string; readonly deliveryId: string };
