import { readFile } from "node:fs/promises";
import type { ProcessContext } from "../app/process-context.ts";
import { receivers as cast, rolledBack, type Scene, scenes } from "./cast.ts";
import { createDemoApi } from "./demo-api.ts";
import { postForgery } from "./forgery.ts";
import { createDemoPipeline } from "./pipeline.ts";
import { type Played, review } from "./review.ts";
import { type Stage, setStage, WINDOW_SECONDS } from "./stage.ts";
import { createWatch } from "./watch.ts";
import type { Words } from "./words.ts";

export type Play = {
  readonly stage: Stage;
  readonly played: readonly Played[];
  /** What did not go as it should; empty when everything did. */
  readonly faults: readonly string[];
};

export type PlayOptions = {
  readonly context: ProcessContext;
  readonly words: Words;
  /** What is started is added here and ended by the caller. */
  readonly stack: AsyncDisposableStack;
  readonly signal: AbortSignal;
  readonly fail: (error: Error) => void;
  /** Use the server of DATABASE_URL in place of an embedded one. */
  readonly isOnServer: boolean;
};

/** The demo from its beginning to the judgement: everything real, nothing left out. */
export async function play(options: PlayOptions): Promise<Play> {
  const { words, signal } = options;
  words.heading(
    "Sealpost tells customers' servers that the analysis of a document has finished. This is it at work.",
  );
  const stage = await start(options);
  const api = createDemoApi(stage.apiUrl, stage.apiKey, signal);
  const receiverNames = new Map(scenes.map((scene) => [scene.analysisId, cast[scene.receiver].hostname]));
  const watch = createWatch(api, words, (analysisId) => receiverNames.get(analysisId) ?? "?", signal);

  const published = await publish(stage, words);
  words.heading("Delivering: each POST is signed, and each receiver verifies it");
  const ids = published.map(({ deliveryId }) => deliveryId);
  const first = await watch.untilEnded(ids);

  const abandoned = first.filter(({ status }) => status === "abandoned");
  const faults = await replay(abandoned, options, stage, api.replay);
  const last = faults.length > 0 ? first : await watch.untilEnded(ids);

  faults.push(...(await forge(stage, options)));
  const played = published.map(({ scene, deliveryId }) => ({
    scene,
    deliveryId,
    first: first.find(({ id }) => id === deliveryId)!,
    last: last.find(({ id }) => id === deliveryId)!,
  }));
  return { stage, played, faults: [...faults, ...(await review(played, stage.receivers, api))] };
}

async function start({ context, words, stack, signal, fail, isOnServer }: PlayOptions): Promise<Stage> {
  words.heading("Starting: all of it on this machine, in a folder that is thrown away at the end");
  const stage = await setStage({
    context,
    stack,
    signal,
    fail,
    isOnServer,
    hear: (step, text) => words.line("started", { step, text }, startedInWords[step](text)),
  });
  for (const [name, { says }] of Object.entries(cast)) {
    const url = stage.receivers.url(name as keyof typeof cast);
    words.line("receiver", { name, url }, `${url.padEnd(45)} ${says}`);
  }
  return stage;
}

const startedInWords: Record<
  Parameters<Parameters<typeof setStage>[0]["hear"]>[0],
  (text: string) => string
> = {
  database: (folder) =>
    folder === "" ? "a database of its own is made on your server" : `PostgreSQL runs in ${folder}`,
  schema: () => "its tables are made, and an account with a signing secret, an API key and an endpoint",
  api: (url) => `the API answers at ${url}`,
  dispatcher: () =>
    `the dispatcher waits for work; its day of retries is compressed into ${WINDOW_SECONDS} seconds`,
};

async function publish({ pipelinePool, accountId, receivers }: Stage, words: Words) {
  words.heading("Publishing: the pipeline stores each result and publishes it, both in one transaction");
  const pipeline = createDemoPipeline(pipelinePool, accountId, receivers);
  const published: { scene: Scene; deliveryId: string }[] = [];
  for (const scene of scenes) {
    const deliveryId = await pipeline.complete(scene);
    published.push({ scene, deliveryId });
    const where = scene.hasOwnUrl
      ? `its own webhook_url, ${cast[scene.receiver].hostname}`
      : "the account's endpoint";
    const fields = { analysis_id: scene.analysisId, delivery_id: deliveryId };
    words.line(
      "published",
      fields,
      `${scene.analysisId.padEnd(14)}  committed; its webhook goes to ${where}`,
    );
  }
  await pipeline.completeInVain(rolledBack);
  const fields = { analysis_id: rolledBack.analysisId };
  words.line(
    "rolled_back",
    fields,
    `${rolledBack.analysisId.padEnd(14)}  rolled back: nobody may ever hear of it`,
  );
  return published;
}

/** Returns what did not go as it should. */
async function replay(
  abandoned: readonly { readonly id: string; readonly analysis_id: string }[],
  { words }: PlayOptions,
  { receivers }: Stage,
  ask: (deliveryId: string) => Promise<number>,
): Promise<string[]> {
  words.heading("Replaying: the broken receiver is mended, and what was abandoned is asked for again");
  receivers.mend();
  const faults: string[] = [];
  for (const { id, analysis_id } of abandoned) {
    const status = await ask(id);
    words.line(
      "replayed",
      { analysis_id, delivery_id: id, status },
      `POST /v1/webhooks/deliveries/${id}/replay → ${status}`,
    );
    if (status !== 202) faults.push(`The API answered ${status} to the replay of ${analysis_id}, not 202.`);
  }
  return faults;
}

async function forge(stage: Stage, { words, signal, context }: PlayOptions): Promise<string[]> {
  words.heading("Forging: somebody who knows the URL, but not the signing secret, sends an event");
  const analysisId = "invoice-6666";
  const status = await postForgery(stage.receivers.url("steady"), {
    analysisId,
    nowMs: context.now(),
    ca: await readFile(stage.caFile, "utf8"),
    signal,
  });
  const isRefused = status === 400 && stage.receivers.refused() === 1;
  const mark = isRefused ? words.good("✓") : words.bad("✗");
  const verdict = `${isRefused ? "refused" : "not refused"}: ${cast.steady.hostname} answered ${status}`;
  words.line("forgery", { status }, `${mark} ${analysisId.padEnd(14)}  ${verdict}`);
  return isRefused ? [] : [`The receiver answered ${status} to a forgery, not 400.`];
}
