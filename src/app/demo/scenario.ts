import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { webhookBody, webhookHeaders, webhookSignature } from "../../delivery/webhook.ts";
import { importSigningKey } from "../../signing/index.ts";
import { analyses, type DemoAnalysis, type ReceiverName, receivers, rolledBackAnalysis } from "./analyses.ts";
import { type ApiClient, type ApiDelivery, createApiClient, createDeliveryWatch } from "./api-client.ts";
import {
  type DemoEnvironment,
  type StartOptions,
  type StartStep,
  startDemoEnvironment,
  WINDOW_SECONDS,
} from "./environment.ts";
import type { DemoOutput } from "./output.ts";
import { createDemoPipeline } from "./pipeline.ts";
import type { DemoReceivers } from "./receivers.ts";
import { playWorkspace } from "./workspace-act.ts";

const FORGED_ANALYSIS_ID = "invoice-6666";

/**
 * POSTs a well-formed webhook that is signed with another secret, as someone could who knows only the URL. Resolves to
 * the HTTP status of the answer.
 * @param nowMs Unix time in milliseconds
 */
async function postForgery(
  url: string,
  options: { readonly caFile: string; readonly nowMs: number; readonly signal: AbortSignal },
): Promise<number> {
  const { caFile, nowMs, signal } = options;
  const body = webhookBody({
    id: randomUUID(),
    event: "analysis.succeeded",
    createdAtMs: nowMs,
    analysisText: `{"id":"${FORGED_ANALYSIS_ID}","status":"succeeded"}`,
  });
  const wrongKey = importSigningKey(`whsec_${randomBytes(32).toString("base64")}`);
  const signature = webhookSignature(body, [wrongKey], nowMs);
  const outgoing = request(url, {
    method: "POST",
    ca: await readFile(caFile, "utf8"),
    signal,
    agent: false,
    // Not every system's resolver knows that names under localhost are this machine.
    lookup: (_hostname, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]),
    headers: webhookHeaders({ signature, traceparent: null }),
  });
  outgoing.end(body);
  const [response] = (await once(outgoing, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}

/** A published analysis and its delivery. */
export type DemoDelivery = {
  readonly analysis: DemoAnalysis;
  readonly deliveryId: string;
  /** After the first run. */
  readonly first: ApiDelivery;
  /** At the end; another run if it was replayed. */
  readonly last: ApiDelivery;
};

/** Compares what happened with what was expected. Returns a sentence for each difference. */
async function findFaults(
  deliveries: readonly DemoDelivery[],
  receivers: DemoReceivers,
  api: ApiClient,
): Promise<readonly string[]> {
  const faults = deliveries.flatMap((one) => [...faultsInLog(one), ...faultsAtReceiver(one, receivers)]);
  for (const { analysis } of deliveries) faults.push(...(await faultsInPolling(analysis, api)));
  return [...faults, ...(await faultsInRollback(receivers, api))];
}

function faultsInLog({ analysis, first, last }: DemoDelivery): string[] {
  const faults: string[] = [];
  const { id, endsAs, attempts } = analysis;
  if (first.status !== endsAs || first.attempts_count !== attempts) {
    faults.push(
      `${id} was ${first.status} after ${first.attempts_count} attempts, not ${endsAs} after ${attempts}.`,
    );
  }
  if (last.status !== "succeeded") faults.push(`${id} is ${last.status} in the end, not succeeded.`);
  return faults;
}

function faultsAtReceiver({ analysis, deliveryId, last }: DemoDelivery, receivers: DemoReceivers): string[] {
  const received = receivers.received.get(deliveryId);
  if (received === undefined) return [`The receiver never got ${analysis.id}.`];
  const faults: string[] = [];
  if (received.verified !== last.attempts_count) {
    faults.push(
      `The receiver verified ${received.verified} POSTs of ${analysis.id}, but the log has ` +
        `${last.attempts_count} attempts.`,
    );
  }
  if (received.accepted !== 1) {
    faults.push(`The receiver accepted ${analysis.id} ${received.accepted} times, not once.`);
  }
  if (!received.body.includes(`"data":${analysis.text}}`)) {
    faults.push(`The webhook of ${analysis.id} does not contain exactly the published bytes.`);
  }
  return faults;
}

async function faultsInPolling({ id, text: published }: DemoAnalysis, api: ApiClient): Promise<string[]> {
  const { status, text } = await api.analysis(id);
  if (status === 200 && text === published) return [];
  return [`GET /v1/analyses/${id} does not return what was published (status ${status}).`];
}

async function faultsInRollback(receivers: DemoReceivers, api: ApiClient): Promise<string[]> {
  const { id } = rolledBackAnalysis;
  const faults: string[] = [];
  const hasArrived = [...receivers.received.values()].some((one) => one.analysisId === id);
  if (hasArrived) faults.push(`${id} was delivered although its transaction was rolled back.`);
  const { status } = await api.analysis(id);
  if (status !== 404) faults.push(`${id} can be read (status ${status}) although it was rolled back.`);
  return faults;
}

const ID_COLUMNS = 14;
const URL_COLUMNS = 45;

export type ScenarioOptions = Omit<StartOptions, "onStep"> & { readonly output: DemoOutput };

export type ScenarioResult = {
  readonly environment: DemoEnvironment;
  readonly deliveries: readonly DemoDelivery[];
  /** Of the workflow's run; null: there is none. */
  readonly runDelivery: ApiDelivery | null;
  /** What did not go as expected, in sentences. */
  readonly faults: readonly string[];
};

/** The whole demo, on the real service: publish, deliver and retry, replay, forge, run a workflow, and check it all. */
export async function runScenario(options: ScenarioOptions): Promise<ScenarioResult> {
  const { output, signal } = options;
  output.heading("Sealpost notifies customers' servers when the analysis of a document has finished.");
  const environment = await start(options);
  const api = createApiClient(environment.apiUrl, environment.apiKey, signal);
  const hostnames = new Map(analyses.map(({ id, receiver }) => [id, receivers[receiver].hostname]));
  const watch = createDeliveryWatch(
    api,
    output,
    (id) => hostnames.get(id) ?? receivers.steady.hostname,
    signal,
  );

  const published = await publish(environment, output);
  output.heading("Delivering: each POST is signed, and each receiver verifies the signature");
  const ids = published.map(({ deliveryId }) => deliveryId);
  const first = await watch.untilEnded(ids);

  const abandoned = first.filter(({ status }) => status === "abandoned");
  const faults = await replay(abandoned, environment, output, api.replay);
  const last = faults.length > 0 ? first : await watch.untilEnded(ids);

  faults.push(...(await forge(environment, options)));
  const workspace = environment.hasWorkspace
    ? await playWorkspace({ environment, output, api, watch, signal })
    : { delivery: null, faults: [] };
  faults.push(...workspace.faults);
  const deliveries = published.map(({ analysis, deliveryId }) => ({
    analysis,
    deliveryId,
    first: first.find(({ id }) => id === deliveryId)!,
    last: last.find(({ id }) => id === deliveryId)!,
  }));
  faults.push(...(await findFaults(deliveries, environment.receivers, api)));
  return { environment, deliveries, runDelivery: workspace.delivery, faults };
}

async function start({ output, ...options }: ScenarioOptions): Promise<DemoEnvironment> {
  output.heading("Starting: everything runs on this machine, in a folder that is removed at the end");
  const environment = await startDemoEnvironment({
    ...options,
    onStep: (step, detail) => output.line("started", { step, text: detail }, stepTexts[step](detail)),
  });
  for (const [name, { behavior }] of Object.entries(receivers)) {
    const url = environment.receivers.url(name as ReceiverName);
    output.line("receiver", { name, url }, `${url.padEnd(URL_COLUMNS)} ${behavior}`);
  }
  return environment;
}

const stepTexts: Readonly<Record<StartStep, (detail: string) => string>> = {
  database: (folder) =>
    folder === "" ? "created a database on your server" : `PostgreSQL is running in ${folder}`,
  schema: () => "created the tables, and an account with a signing secret, an API key and an endpoint",
  api: (url) => `the API is running at ${url}`,
  dispatcher: () => `the dispatcher is running; it retries for ${WINDOW_SECONDS} seconds instead of a day`,
};

async function publish({ pipelinePool, accountId, receivers: running }: DemoEnvironment, output: DemoOutput) {
  output.heading("Publishing: the pipeline stores each result and publishes it, in one transaction");
  const pipeline = createDemoPipeline(pipelinePool, accountId, running);
  const published: { readonly analysis: DemoAnalysis; readonly deliveryId: string }[] = [];
  for (const analysis of analyses) {
    const { id, hasOwnUrl, receiver } = analysis;
    const deliveryId = await pipeline.complete(analysis);
    published.push({ analysis, deliveryId });
    const target = hasOwnUrl
      ? `its own webhook_url, ${receivers[receiver].hostname}`
      : "the account's endpoint";
    const fields = { analysis_id: id, delivery_id: deliveryId };
    output.line("published", fields, `${id.padEnd(ID_COLUMNS)}  committed; its webhook goes to ${target}`);
  }
  await pipeline.failToComplete(rolledBackAnalysis);
  const { id } = rolledBackAnalysis;
  output.line(
    "rolled_back",
    { analysis_id: id },
    `${id.padEnd(ID_COLUMNS)}  rolled back: it must never be sent`,
  );
  return published;
}

/** Returns what did not go as expected. */
async function replay(
  abandoned: readonly { readonly id: string; readonly analysis_id: string }[],
  { receivers: running }: DemoEnvironment,
  output: DemoOutput,
  requestReplay: (deliveryId: string) => Promise<number>,
): Promise<string[]> {
  output.heading("Replaying: the broken receiver is repaired, and the abandoned delivery is replayed");
  running.repair();
  const faults: string[] = [];
  for (const { id, analysis_id } of abandoned) {
    const status = await requestReplay(id);
    const fields = { analysis_id, delivery_id: id, status };
    output.line("replayed", fields, `POST /v1/webhooks/deliveries/${id}/replay → ${status}`);
    if (status !== 202) faults.push(`The API answered ${status} to the replay of ${analysis_id}, not 202.`);
  }
  return faults;
}

/** Returns what did not go as expected. */
async function forge(
  { receivers: running, caFile }: DemoEnvironment,
  { output, signal, context }: ScenarioOptions,
): Promise<string[]> {
  output.heading("Forging: someone who knows the URL but not the signing secret sends a webhook");
  const status = await postForgery(running.url("steady"), { caFile, nowMs: context.now(), signal });
  const isRefused = status === 400 && running.rejectedCount() === 1;
  const mark = isRefused ? output.green("✓") : output.red("✗");
  const verdict = `${isRefused ? "refused" : "not refused"}: ${receivers.steady.hostname} answered ${status}`;
  output.line("forgery", { status }, `${mark} ${FORGED_ANALYSIS_ID.padEnd(ID_COLUMNS)}  ${verdict}`);
  return isRefused ? [] : [`The receiver answered ${status} to a forgery, not 400.`];
}
