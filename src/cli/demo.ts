import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "@commander-js/extra-typings";
import type { ProcessContext } from "../app/process-context.ts";
import { inColumns } from "../app/terminal-text.ts";
import type { Play } from "../demo/play.ts";
import type { Stage } from "../demo/stage.ts";
import { summaryFields, summaryTable } from "../demo/summary.ts";
import { createWords, type Words } from "../demo/words.ts";

/** It takes a quarter of this on an idle machine. */
const TIME_LIMIT_MS = 80_000;
const SIGNAL_WITHIN_MS = 200;

const RIGHT =
  "All went as it should: every analysis that was committed has arrived, signed, and was accepted exactly once; " +
  "the one rolled back was never sent.";
const NEXT = "Next: npm start runs it for you to use; see README.md, “A first webhook, by hand”.";

export function addDemoCommand(program: Command, context: ProcessContext): void {
  program
    .command("demo")
    .description("show deliveries to receivers of its own, from the first attempt to a replay, and end")
    .option("--stay", "keep it running, and say under which address and key")
    .option("--use-server", "in a database of its own on the server of DATABASE_URL, removed at the end")
    .option("--json", "say what happens in JSON, a line each")
    .action(async (options) => {
      const words = createWords(context, options);
      const asked = context.untilAskedToEnd();
      const failure = new AbortController();
      const signal = AbortSignal.any([asked, failure.signal, AbortSignal.timeout(TIME_LIMIT_MS)]);
      const isRight = await run(context, words, {
        isToStay: options.stay === true,
        isOnServer: options.useServer === true,
        asked,
        signal,
        fail: (error) => failure.abort(error),
      });
      context.setExitCode(isRight ? 0 : 1);
    });
}

type RunOptions = {
  readonly isToStay: boolean;
  readonly isOnServer: boolean;
  /** Aborted when the process is asked to end. */
  readonly asked: AbortSignal;
  /** The same, and when time is up or the service cannot go on. */
  readonly signal: AbortSignal;
  readonly fail: (error: Error) => void;
};

/** Whether all went as it should. Leaves nothing behind, however it ends. */
async function run(context: ProcessContext, words: Words, options: RunOptions): Promise<boolean> {
  const { asked, signal, fail, isToStay, isOnServer } = options;
  await using stack = new AsyncDisposableStack();
  try {
    // Loaded here, so that no other command pays for making certificates in time and memory.
    const { play } = await import("../demo/play.ts");
    const outcome = await play({ context, words, stack, signal, fail, isOnServer });
    conclude(outcome, words);
    if (outcome.faults.length > 0) return false;
    if (isToStay) await stay(outcome.stage, words, asked);
    return true;
  } catch (error) {
    // Ctrl-C in a terminal reaches the service too, and that it ends may be seen here before the signal is.
    if (!signal.aborted) await Promise.race([once(asked, "abort"), delay(SIGNAL_WITHIN_MS)]);
    if (asked.aborted) {
      words.announce("ended", {}, "\nThe demo was asked to end before it was done. Nothing of it is left.");
      return false;
    }
    const reason = reasonFor(signal.aborted ? signal.reason : error);
    words.announce("failed", { reason }, `\n${words.bad("The demo has failed.")} ${reason}`);
    return false;
  }
}

function conclude({ played, faults, stage }: Play, words: Words): void {
  words.heading("Summary");
  const table = summaryTable(played, stage.receivers);
  words.announce("summary", { deliveries: played.map(summaryFields), faults }, table);
  const verdict =
    faults.length === 0
      ? [words.good(RIGHT), NEXT].join("\n\n")
      : [words.bad("Not all went as it should."), ...faults].join("\n  ");
  words.announce("verdict", { is_right: faults.length === 0 }, `\n${verdict}`);
}

function reasonFor(error: unknown): string {
  if (error instanceof DOMException && error.name === "TimeoutError") {
    return `It was not done after ${TIME_LIMIT_MS / 1_000} s; this machine may be too busy.`;
  }
  return error instanceof Error ? error.message : String(error);
}

async function stay(stage: Stage, words: Words, asked: AbortSignal): Promise<void> {
  const { apiUrl, apiKey, signingSecret, accountId, receivers } = stage;
  const endpoint = receivers.url("steady");
  words.announce(
    "staying",
    { url: apiUrl, api_key: apiKey, signing_secret: signingSecret, account_id: accountId, endpoint },
    `\nIt keeps running until Ctrl-C.\n\n${inColumns({
      API: apiUrl,
      "API key": apiKey,
      account: accountId,
      "signing secret": signingSecret,
      endpoint,
    })}\n\nTry: curl -H "Authorization: Bearer ${apiKey}" ${apiUrl}/v1/webhooks/deliveries`,
  );
  if (!asked.aborted) await once(asked, "abort");
}
