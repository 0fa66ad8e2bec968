/** The demo's three receivers, under host names that resolve to this machine. */
export const receivers = {
  steady: { hostname: "steady.localhost", behavior: "accepts every delivery; the account's endpoint" },
  restarting: {
    hostname: "restarting.localhost",
    behavior: "answers 503 to the first two attempts of each delivery",
  },
  broken: { hostname: "broken.localhost", behavior: "answers 500 to everything until it is repaired" },
} as const;

export type ReceiverName = keyof typeof receivers;

export const ATTEMPTS_REFUSED_WHILE_RESTARTING = 2;

/** An analysis that the pipeline completes, and what its delivery must come to. */
export type DemoAnalysis = {
  readonly id: string;
  /** The exact text. The webhook's `data` has to be the same, byte for byte. */
  readonly text: string;
  readonly receiver: ReceiverName;
  /** Published with a webhook URL of its own instead of the account's endpoint. */
  readonly hasOwnUrl: boolean;
  /** Attempts of the first run. */
  readonly attempts: number;
  /** Status after the first run. */
  readonly endsAs: "succeeded" | "abandoned";
};

export const analyses: readonly DemoAnalysis[] = [
  analysis("invoice-1001", "steady", '"succeeded", "total": 9007199254740993.10'),
  analysis("contract-1002", "steady", '"succeeded", "pages": 12, "language": "espa\\u00f1ol"'),
  analysis("scan-1003", "steady", '"failed", "error": "the third page is blank"'),
  analysis("report-1004", "restarting", '"succeeded", "tables": 3'),
  analysis("report-1005", "restarting", '"succeeded", "tables": 0'),
  analysis("statement-1006", "broken", '"succeeded", "balance": -0.00'),
];

/** Its transaction is rolled back after publishing, so it must never be seen. */
export const rolledBackAnalysis: DemoAnalysis = analysis("draft-1007", "steady", '"succeeded"');

function analysis(id: string, receiver: ReceiverName, rest: string): DemoAnalysis {
  const expected = {
    steady: { attempts: 1, endsAs: "succeeded" },
    restarting: { attempts: ATTEMPTS_REFUSED_WHILE_RESTARTING + 1, endsAs: "succeeded" },
    broken: { attempts: 8, endsAs: "abandoned" },
  } as const;
  return {
    id,
    text: `{"id": "${id}", "status": ${rest}}`,
    receiver,
    hasOwnUrl: receiver !== "steady",
    ...expected[receiver],
  };
}
