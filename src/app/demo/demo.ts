import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { inColumns, textTable } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import type { DemoEnvironment } from "./environment.ts";
import { createDemoOutput, type DemoOutput } from "./output.ts";
import { RECEIVERS } from "./receivers.ts";
import { ROLLED_BACK, runScenario, type ScenarioResult } from "./scenario.ts";

/** On an idle machine it takes a quarter of this. */
const TIME_LIMIT_MS = 80_000;
const SIGNAL_WITHIN_MS = 200;

const PASSED =
  "Everything went as expected: every committed analysis was delivered, signed, and accepted exactly once; " +
  "the one that was rolled back was never sent.";
const NEXT = "Next: `npm start` runs Sealpost for you to use; see README.md, “Quickstart”.";

export type DemoOptions = {
  /** Keep running after the demo, until shutdown. */
  readonly stay?: true | undefined;
  /** Use the server of DATABASE_URL instead of an embedded one. */
  readonly useServer?: true | undefined;
  readonly json?: true | undefined;
};

/** Runs the demo and leaves nothing behind, however it ends. Resolves to whether everything went as expected. */
export async function runDemo(context: ProcessContext, options: DemoOptions): Promise<boolean> {
  const output = createDemoOutput(context, options);
  const shutdown = context.createShutdownSignal();
  const failure = new AbortController();
  const signal = AbortSignal.any([shutdown, failure.signal, AbortSignal.timeout(TIME_LIMIT_MS)]);
  const onFailure = (error: Error) => failure.abort(error);
  const usesServer = options.useServer === true;
  await using resources = new AsyncDisposableStack();
  try {
    const result = await runScenario({ context, output, resources, signal, onFailure, usesServer });
    printSummary(result, output);
    if (result.faults.length > 0) return false;
    if (options.stay) await stay(result.environment, output, shutdown);
    return true;
  } catch (error) {
    // Ctrl-C in a terminal also goes to the service, whose end may be noticed here before the signal is.
    if (!signal.aborted) await Promise.race([once(shutdown, "abort"), delay(SIGNAL_WITHIN_MS)]);
    if (shutdown.aborted) {
      output.announce("ended", {}, "\nThe demo was stopped before it was done. It left nothing behind.");
      return false;
    }
    const reason = reasonFor(signal.aborted ? signal.reason : error);
    output.announce("failed", { reason }, `\n${output.red("The demo failed.")} ${reason}`);
    return false;
  }
}

/** What became of each analysis, and whether that is right. */
function printSummary(result: ScenarioResult, output: DemoOutput): void {
  const { deliveries, environment, faults } = result;
  const rows = deliveries.map(({ analysis, first, last }) => {
    const { hostname } = RECEIVERS[analysis.receiver];
    const final = last.run > first.run ? `${last.status} by replay` : last.status;
    const { verified = 0 } = environment.receivers.received.get(last.id) ?? {};
    const signatures = `${verified} of ${last.attempts_count} valid`;
    return [analysis.id, hostname, first.status, final, `${last.attempts_count}`, signatures];
  });
  rows.push([ROLLED_BACK.id, RECEIVERS[ROLLED_BACK.receiver].hostname, "–", "never sent", "0", "–"]);
  output.heading("Summary");
  const head = ["analysis", "receiver", "first run", "final", "POSTs", "signatures"];
  output.announce(
    "summary",
    { deliveries: deliveries.map(({ last }) => last), faults },
    textTable(head, rows),
  );
  const hasPassed = faults.length === 0;
  const verdict = hasPassed
    ? [output.green(PASSED), NEXT].join("\n\n")
    : [output.red("Not everything went as expected."), ...faults].join("\n  ");
  output.announce("verdict", { is_right: hasPassed }, `\n${verdict}`);
}

function reasonFor(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return `It was not done within ${TIME_LIMIT_MS / 1_000} s; the machine may be too busy.`;
  }
  return error instanceof Error ? error.message : String(error);
}

async function stay(environment: DemoEnvironment, output: DemoOutput, shutdown: AbortSignal): Promise<void> {
  const { apiUrl, apiKey, signingSecret, accountId, receivers } = environment;
  const endpoint = receivers.url("steady");
  const console = await environment.consoleLink();
  output.announce(
    "staying",
    { url: apiUrl, api_key: apiKey, signing_secret: signingSecret, account_id: accountId, endpoint, console },
    `\nThe demo keeps running until Ctrl-C.\n\n${inColumns({
      API: apiUrl,
      "API key": apiKey,
      account: accountId,
      "signing secret": signingSecret,
      endpoint,
      "console (once, within 10 minutes)": console,
    })}\n\nTry: curl -H "Authorization: Bearer ${apiKey}" ${apiUrl}/v1/webhooks/deliveries`,
  );
  if (!shutdown.aborted) await once(shutdown, "abort");
}
