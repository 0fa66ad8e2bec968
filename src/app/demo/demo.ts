import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { ClientBase } from "pg";
import { inTransaction } from "../../base/database/transaction.ts";
import { webhookBody, webhookHeaders, webhookSignature } from "../../delivery/webhook.ts";
import { createPoster } from "../../egress/post/post.ts";
import type { Delivery } from "../../log/delivery-schema.ts";
import { publish } from "../../publish/publish-analyses.ts";
import { importSigningKey } from "../../signing/index.ts";
import { createEgress } from "../egress.ts";
import { inColumns, textTable } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { createDemoApi, type DemoApi } from "./api.ts";
import { type DemoEnvironment, type StartOptions, startDemoEnvironment } from "./environment.ts";
import { insertResult } from "./example-database-sql.ts";
import { createDemoOutput, type DemoOutput } from "./output.ts";
import { type DemoReceivers, ID_COLUMNS, RECEIVERS, type ReceiverName } from "./receivers.ts";
import { playWorkspace } from "./workspace-act.ts";

/** On an idle machine it takes a quarter of this. */
const TIME_LIMIT_MS = 80_000;
const SIGNAL_WITHIN_MS = 200;

const PASSED =
  "Everything went as expected: every committed analysis was delivered, signed, and accepted exactly once; " +
  "the one that was rolled back was never sent.";
const NEXT = "Next: `npm start` runs Sealpost for you to use; see README.md, “Quickstart”.";

/** Those of the command. */
export type DemoOptions = { readonly [Name in "stay" | "useServer" | "json"]?: true | undefined };

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

/** An analysis that the pipeline completes. */
type DemoAnalysis = {
  readonly id: string;
  /** The exact text. The webhook's `data` has to be the same, byte for byte. */
  readonly text: string;
  readonly receiver: ReceiverName;
};

const ANALYSES: readonly DemoAnalysis[] = [
  analysis("invoice-1001", "steady", '"succeeded", "total": 9007199254740993.10'),
  analysis("contract-1002", "steady", '"succeeded", "pages": 12, "language": "espa\\u00f1ol"'),
  analysis("scan-1003", "steady", '"failed", "error": "the third page is blank"'),
  analysis("report-1004", "restarting", '"succeeded", "tables": 3'),
  analysis("statement-1005", "broken", '"succeeded", "balance": -0.00'),
];

/** Its transaction is rolled back after publishing, so it must never be seen. */
const ROLLED_BACK = analysis("draft-1006", "steady", '"succeeded"');

const FORGED_ID = "invoice-6666";

function analysis(id: string, receiver: ReceiverName, rest: string): DemoAnalysis {
  return { id, text: `{"id": "${id}", "status": ${rest}}`, receiver };
}

/** A published analysis and its delivery after the first run and, another run if it was replayed, at the end. */
type DemoDelivery = { readonly analysis: DemoAnalysis; readonly first: Delivery; readonly last: Delivery };

/**
 * The whole demo, on the real service: publish, deliver and retry, replay, forge, run a workflow, and check it all.
 * `faults`: what did not go as expected, in sentences.
 */
async function runScenario(options: StartOptions) {
  const { output, signal } = options;
  output.heading("Sealpost notifies customers' servers when the analysis of a document has finished.");
  output.heading("Starting: everything runs on this machine, in a folder that is removed at the end");
  const environment = await startDemoEnvironment(options);
  const { receivers, config } = environment;
  for (const [name, { behavior }] of Object.entries(RECEIVERS)) {
    const url = receivers.url(name as ReceiverName);
    output.line("receiver", { name, url }, `${url.padEnd(URL_COLUMNS)} ${behavior}`);
  }
  const api = createDemoApi(environment.apiUrl, environment.apiKey, signal);

  const published = await publishAll(environment, output);
  output.heading(
    "Delivering: each POST is signed, and each receiver verifies the signature before it answers",
  );
  const ids = [...published.keys()];
  const first = await api.untilEnded(ids);
  await replayAbandoned(first, environment, api, output);
  const last = await api.untilEnded(ids);
  const forgeryStatus = await forge(environment, options);
  const userApi = createDemoApi(environment.apiUrl, environment.userKey, signal);
  const hasWorkspace = config.areas.some((area: string) => area === "workspace");
  const workspaceFaults = hasWorkspace ? await playWorkspace(environment, api, userApi, output) : [];

  const deliveries: readonly DemoDelivery[] = [...published].map(([deliveryId, analysis]) => {
    const isIt = ({ id }: Delivery) => id === deliveryId;
    return { analysis, first: first.find(isIt)!, last: last.find(isIt)! };
  });
  const faults = [...(await findFaults(deliveries, receivers, api)), ...workspaceFaults];
  if (forgeryStatus !== 400) faults.push(`The receiver answered ${forgeryStatus} to a forgery, not 400.`);
  return { environment, deliveries, faults };
}

const URL_COLUMNS = 45;

/** Returns each published analysis by its delivery's id. */
async function publishAll(
  { pool, accountId, receivers }: DemoEnvironment,
  output: DemoOutput,
): Promise<ReadonlyMap<string, DemoAnalysis>> {
  output.heading("Publishing: the pipeline stores each result and publishes it, in one transaction");
  const complete = async (client: ClientBase, { id, text, receiver }: DemoAnalysis) => {
    await insertResult(client, id, text);
    const webhookUrl = receiver === "steady" ? null : receivers.url(receiver);
    const unsafeAllowedTargets = [`*.localhost:${receivers.port}`];
    return await publish(client, [{ accountId, analysis: text, webhookUrl }], { unsafeAllowedTargets });
  };
  const published = new Map<string, DemoAnalysis>();
  for (const analysis of ANALYSES) {
    const { id, receiver } = analysis;
    const [deliveryId = ""] = await inTransaction(pool, (client) => complete(client, analysis));
    published.set(deliveryId, analysis);
    const target =
      receiver === "steady"
        ? "the account's endpoint"
        : `its own webhook_url, ${RECEIVERS[receiver].hostname}`;
    const text = `${id.padEnd(ID_COLUMNS)}  committed; its webhook goes to ${target}`;
    output.line("published", { analysis_id: id, delivery_id: deliveryId }, text);
  }
  const { id } = ROLLED_BACK;
  const failure = new Error("The pipeline's disk is full.");
  await inTransaction(pool, async (client) => {
    await complete(client, ROLLED_BACK);
    throw failure;
  }).catch((error) => {
    if (error !== failure) throw error;
  });
  output.line(
    "rolled_back",
    { analysis_id: id },
    `${id.padEnd(ID_COLUMNS)}  rolled back: it must never be sent`,
  );
  return published;
}

async function replayAbandoned(
  deliveries: readonly Delivery[],
  { receivers }: DemoEnvironment,
  api: DemoApi,
  output: DemoOutput,
): Promise<void> {
  const abandoned = deliveries.filter(({ status }) => status === "abandoned");
  for (const { id: delivery_id, analysis_id, attempts_count } of abandoned) {
    const text = `abandoned after ${attempts_count} attempts; it can be replayed for 7 days`;
    output.line("abandoned", { analysis_id, delivery_id }, `  ${analysis_id.padEnd(ID_COLUMNS)}  ${text}`);
  }
  output.heading("Replaying: the broken receiver is repaired, and the abandoned delivery is replayed");
  receivers.repair();
  for (const { id: delivery_id, analysis_id } of abandoned) {
    const path = `/webhooks/deliveries/${delivery_id}/replay`;
    const { status } = await api.send(`POST ${path}`);
    output.line("replayed", { analysis_id, delivery_id, status }, `POST /v1${path} → ${status}`);
    if (status !== 202)
      throw new Error(`The API answered ${status} to the replay of ${analysis_id}, not 202.`);
  }
}

/**
 * POSTs a well-formed webhook that is signed with another secret, as someone could who knows only the URL. Resolves to
 * the HTTP status of the answer; null: there was none.
 */
async function forge(
  { receivers, config }: DemoEnvironment,
  { output, context }: StartOptions,
): Promise<number | null> {
  output.heading("Forging: someone who knows the URL but not the signing secret sends a webhook");
  const body = webhookBody({
    id: randomUUID(),
    event: "analysis.succeeded",
    createdAtMs: context.now(),
    analysisText: `{"id":"${FORGED_ID}","status":"succeeded"}`,
  });
  const wrongKey = importSigningKey(`whsec_${randomBytes(32).toString("base64")}`);
  const signature = webhookSignature(body, [wrongKey], context.now());
  const poster = createPoster({ egress: createEgress(config), now: () => performance.now() });
  const { statusCode: status } = await poster.post({
    url: new URL(receivers.url("steady")),
    headers: webhookHeaders({ signature, traceparent: null }),
    body,
    deadlineMs: config.attemptDeadlineMs,
  });
  await poster.close();
  const verdict = `${status === 400 ? "refused" : "not refused"}: ${RECEIVERS.steady.hostname} answered ${status}`;
  output.result("forgery", { status }, status === 400, `${FORGED_ID.padEnd(ID_COLUMNS)}  ${verdict}`);
  return status;
}

/** Compares what happened with what was expected. Returns a sentence for each difference. */
async function findFaults(
  deliveries: readonly DemoDelivery[],
  receivers: DemoReceivers,
  api: DemoApi,
): Promise<string[]> {
  const faults: string[] = [];
  const compare = (what: string, found: unknown, expected: unknown) => {
    if (found !== expected) faults.push(`${what}: ${found}, not ${expected}.`);
  };
  for (const { analysis, first, last } of deliveries) {
    const { id, text, receiver } = analysis;
    const { endsAs, attempts } = RECEIVERS[receiver];
    const got = receivers.received.get(last.id);
    compare(`${id} after its first run`, first.status, endsAs);
    compare(`Attempts of the first run of ${id}`, first.attempts_count, attempts);
    compare(`${id} in the end`, last.status, "succeeded");
    compare(`POSTs of ${id} that the receiver verified`, got?.verified, last.attempts_count);
    compare(`POSTs of ${id} that the receiver accepted`, got?.accepted, 1);
    compare(`The webhook of ${id} has exactly the bytes`, got?.body.includes(`"data":${text}}`), true);
    compare(`GET /v1/analyses/${id}`, (await api.send(`GET /analyses/${id}`)).text, text);
  }
  const { id } = ROLLED_BACK;
  const arrived = [...receivers.received.values()].filter(({ analysisId }) => analysisId === id);
  compare(`Deliveries of ${id}, which was rolled back`, arrived.length, 0);
  compare(
    `GET /v1/analyses/${id}, which was rolled back`,
    (await api.send(`GET /analyses/${id}`)).status,
    404,
  );
  compare("POSTs that the receivers refused", receivers.rejectedCount(), 1);
  return faults;
}

/** What became of each analysis, and whether that is right. */
function printSummary(result: Awaited<ReturnType<typeof runScenario>>, output: DemoOutput): void {
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
