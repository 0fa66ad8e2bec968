import { analyses, type DemoAnalysis, type ReceiverName, receivers, rolledBackAnalysis } from "./analyses.ts";
import { type ApiDelivery, createApiClient } from "./api-client.ts";
import { type DemoDelivery, findFaults } from "./checks.ts";
import { createDeliveryWatch } from "./delivery-watch.ts";
import {
  type DemoEnvironment,
  type StartOptions,
  type StartStep,
  startDemoEnvironment,
  WINDOW_SECONDS,
} from "./environment.ts";
import { FORGED_ANALYSIS_ID, postForgery } from "./forgery.ts";
import type { DemoOutput } from "./output.ts";
import { createDemoPipeline } from "./pipeline.ts";
import { playWorkspace } from "./workspace-act.ts";

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
