/** Who plays in the demo: three receivers, by their names on this machine. */
export const receivers = {
  steady: { hostname: "steady.localhost", says: "accepts every delivery; the account's endpoint" },
  restarting: {
    hostname: "restarting.localhost",
    says: "answers 503 to the first two attempts of each delivery",
  },
  broken: { hostname: "broken.localhost", says: "answers 500 to everything, until somebody mends it" },
} as const;

export type ReceiverName = keyof typeof receivers;

export const ATTEMPTS_REFUSED_WHILE_RESTARTING = 2;

/** An analysis that the pipeline completes, and how its delivery has to end. */
export type Scene = {
  readonly analysisId: string;
  /** The exact text. The webhook's `data` has to be the same, byte for byte. */
  readonly analysis: string;
  readonly receiver: ReceiverName;
  /** The URL is given with the analysis, in place of the account's endpoint. */
  readonly hasOwnUrl: boolean;
  /** Attempts of the first run. */
  readonly attempts: number;
  readonly endsAs: "succeeded" | "abandoned";
};

export const scenes: readonly Scene[] = [
  scene("invoice-1001", "steady", '"succeeded", "total": 9007199254740993.10'),
  scene("contract-1002", "steady", '"succeeded", "pages": 12, "language": "espa\\u00f1ol"'),
  scene("scan-1003", "steady", '"failed", "error": "the third page is blank"'),
  scene("report-1004", "restarting", '"succeeded", "tables": 3'),
  scene("report-1005", "restarting", '"succeeded", "tables": 0'),
  scene("statement-1006", "broken", '"succeeded", "balance": -0.00'),
];

/** Its transaction is rolled back after publishing: nothing of it may ever be seen. */
export const rolledBack: Scene = scene("draft-1007", "steady", '"succeeded"');

function scene(analysisId: string, receiver: ReceiverName, rest: string): Scene {
  const endings = {
    steady: { attempts: 1, endsAs: "succeeded" },
    restarting: { attempts: ATTEMPTS_REFUSED_WHILE_RESTARTING + 1, endsAs: "succeeded" },
    broken: { attempts: 8, endsAs: "abandoned" },
  } as const;
  return {
    analysisId,
    analysis: `{"id": "${analysisId}", "status": ${rest}}`,
    receiver,
    hasOwnUrl: receiver !== "steady",
    ...endings[receiver],
  };
}
