// The real `dispatch` and `serve`, as an operator runs them.
import { closeSync, openSync } from "node:fs";
import { type SealpostProcess, startProcess } from "../../support/sealpost-process.ts";

/** Requests of a key in a minute. The default of 600 would end a measurement of anything at 10 a second. */
export const RAISED_RATE_LIMIT = 1_000_000;

export type DispatcherOptions = {
  readonly databaseUrl: string;
  readonly receiverPort: number;
  readonly caFile: string;
  readonly inFlightMax: number;
  readonly env: Readonly<Record<string, string>>;
  /** Flags of Node. */
  readonly execArgv: readonly string[];
  /** In place of the real command. */
  readonly program?: string | undefined;
  /** Where its standard output goes, as to an operator's log. */
  readonly outputFile?: string | undefined;
  /** Reads its metrics so often. */
  readonly scrapeEveryMs?: number | undefined;
};

/** Resolves when it says that it is ready. It says nothing else, unless something goes wrong (the level is `warn`). */
export async function startDispatcher(options: DispatcherOptions): Promise<SealpostProcess> {
  const stdout = options.outputFile === undefined ? "pipe" : openSync(options.outputFile, "a");
  const env = {
    DATABASE_URL: options.databaseUrl,
    TARGET_CA_FILE: options.caFile,
    UNSAFE_ALLOWED_TARGETS: `*.many.localhost:${options.receiverPort}`,
    DISPATCH_IN_FLIGHT_MAX: String(options.inFlightMax),
    LOG_LEVEL: "warn",
    ...options.env,
  };
  const dispatcher = await startProcess("dispatch", env, {
    main: options.program,
    nodeFlags: options.execArgv,
    stdout,
  });
  if (typeof stdout === "number") closeSync(stdout);
  if (options.scrapeEveryMs !== undefined) scrape(dispatcher, options.scrapeEveryMs);
  return dispatcher;
}

/** As a monitor does, until the process ends. */
function scrape(dispatcher: SealpostProcess, everyMs: number): void {
  const timer = setInterval(() => {
    fetch(`${dispatcher.metricsUrl}/metrics`)
      .then((response) => response.arrayBuffer())
      .catch(() => undefined);
  }, everyMs);
  void dispatcher.ended.then(() => clearInterval(timer));
}

export type ApiOptions = {
  readonly databaseUrl: string;
  /** Every request is logged there, as in production. */
  readonly logFile: string;
  /** Instead of the default. */
  readonly env: Readonly<Record<string, string>>;
};

/** Resolves when it listens. */
export async function startApi({ databaseUrl, logFile, env }: ApiOptions): Promise<SealpostProcess> {
  const stdout = openSync(logFile, "a");
  const options = { stdout, stderr: "inherit" } as const;
  const api = await startProcess("serve", { DATABASE_URL: databaseUrl, ...env }, options);
  closeSync(stdout);
  return api;
}
