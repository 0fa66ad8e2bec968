import type { Pool } from "pg";
import type { Logger } from "pino";
import type { ApiPart } from "../api/operations.ts";
import type { Config } from "../base/config/config.ts";
import { createGeneralPool } from "../base/database/pools.ts";
import type { Tally } from "../base/metrics/registry.ts";
import {
  createMovingMetrics,
  createRunMetrics,
  type MovingMetrics,
  type RunMetrics,
} from "../base/metrics/workspace-metrics.ts";
import type { Area } from "../base/model/areas.ts";
import { DAY_MS } from "../base/model/time.ts";
import type { GuardPublishing } from "../delivery/analyses-api.ts";
import type { ProcessMetrics } from "../delivery/process-metrics.ts";
import { startMover } from "../workspace/moving/mover.ts";
import { knownStore, openObjectStore } from "../workspace/objects/known-store.ts";
import type { ObjectStore } from "../workspace/objects/object-store.ts";
import { workspacePart } from "../workspace/operations/workspace-part.ts";
import { type RunnerWork, startRunner } from "../workspace/running/runner.ts";
import { guardPublishing as guardRuns } from "../workspace/store/awaited-analyses.ts";
import { readOldestMove } from "../workspace/store/moves.ts";
import { hasRuns } from "../workspace/store/runs.ts";
import { readOldestReadyStep } from "../workspace/store/steps.ts";
import { hasSpaces, readStoreId, settleStoreId } from "../workspace/store/storage.ts";
import { STEP_CONNECTIONS } from "./dispatch-process.ts";
import { type Dependencies, webhooksPart } from "./operations.ts";
import type { OutageAs503 } from "./outage-as-503.ts";
import type { ProcessContext } from "./process-context.ts";
import { type DispatcherNews, keepStepProcess } from "./step-process.ts";

export type AreaOptions = {
  readonly config: Config;
  readonly dependencies: Dependencies;
  readonly outageAs503: OutageAs503;
  /** What an area needs besides the database did not answer. */
  readonly onAway: (error: Error) => void;
};

/** What each area adds to the API. This file alone knows the workspace; a test builds the service without it. */
const apiParts: Readonly<Record<Area, (options: AreaOptions) => ApiPart>> = {
  webhooks: ({ dependencies }) => webhooksPart(dependencies),
  workspace: ({ config, dependencies: { pool, unsafeAllowedTargets }, outageAs503, onAway }) =>
    workspacePart({
      pool,
      objects: openObjects(config, pool),
      onObjectsAway: onAway,
      unsafeAllowedTargets,
      pagesUrl: config.pagesUrl,
      outageAs503,
    }),
};

/** Opened when it is first used, and used once it is known to be the one that all processes have. */
function openObjects(config: Config, pool: Pool): ObjectStore {
  const ids = {
    read: () => readStoreId(pool),
    settle: (findId: () => Promise<string>) => settleStoreId(pool, findId),
  };
  return knownStore(() => openObjectStore(config), ids);
}

/** In the order of the areas. */
export function apiPartsOf(options: AreaOptions): readonly ApiPart[] {
  return options.config.areas.map((area) => apiParts[area](options));
}

export type AreaWorkOptions = {
  readonly config: Config;
  readonly context: ProcessContext;
  readonly pool: Pool;
  readonly log: Logger;
  readonly metrics: ProcessMetrics;
  /** Attempts that the dispatcher has made so far. */
  readonly countAttempts: () => number;
};

/**
 * Tells once, as soon as it is known, if an area cannot have what it needs besides the database. The process goes on:
 * what is away may come back, and the other area does not need it. Returns what ends the question.
 */
export function startAreaChecks({
  config,
  pool,
  log,
}: Pick<AreaWorkOptions, "config" | "pool" | "log">): () => Promise<void> {
  if (!config.areas.includes("workspace")) return async () => undefined;
  const stopping = new AbortController();
  const checking = checkObjects(config, pool, stopping.signal).catch((err: unknown) => {
    if (stopping.signal.aborted) return;
    const mend =
      config.objectStoreUrl === null ? "the folder STATE_DIR/objects" : "OBJECT_STORE_URL and its keys";
    log.warn({ err }, `documents cannot be stored or read now, and their requests get 503: check ${mend}`);
  });
  return async () => {
    stopping.abort();
    await checking;
  };
}

async function checkObjects(config: Config, pool: Pool, signal: AbortSignal): Promise<void> {
  const objects = openObjects(config, pool);
  try {
    await objects.check(signal);
  } finally {
    await objects.close();
  }
}

/** Starts what areas have to do beside a dispatcher. Returns what ends it. */
export function startAreaWork(options: AreaWorkOptions): () => Promise<void> {
  const { config, context, pool, log, metrics, countAttempts } = options;
  if (!config.areas.includes("workspace")) return async () => undefined;
  const counted = createMovingMetrics(metrics.registry);
  const runs = createRunMetrics(metrics.registry);
  const failed = metrics.faults.of({ work: "runs" });
  // Until there is a process of steps, nothing is kept from it.
  runs.share.of({}).set(1);
  metrics.registry.onRead(() => setAge(counted, readOldestMove(pool)));
  metrics.registry.onRead(() => setAge(runs, readOldestReadyStep(pool)));
  const objects = openObjects(config, pool);
  const stopMover = startMover({
    pool,
    objects,
    keptMs: config.movedObjectRetentionSeconds * 1_000,
    now: context.now,
    onLost: ({ accountId, documentId }) => {
      counted.lost.of({}).add();
      log.error({ account_id: accountId, document_id: documentId }, "a document's object is missing");
    },
    onError: (work, err) => {
      metrics.faults.of({ work: "objects" }).add();
      log.warn({ work, err }, "objects: an error of the database or the object store; trying again");
    },
  });
  const steps = keepStepProcess({
    context,
    log,
    isWanted: () => hasRuns(pool),
    onMessage: (message) => countRunNews(runs, failed, message),
    countAttempts,
    onDeath: () => {
      failed.add();
      runs.share.clear();
    },
  });
  return async () => {
    await Promise.all([stopMover(), steps.stop()]);
    await objects.close();
  };
}

export type AreaStepOptions = {
  readonly config: Config;
  readonly context: ProcessContext;
  readonly databaseUrl: string;
  readonly log: Logger;
};

/** Does what areas have for a process of its own, beside a dispatcher's. Returns what ends it. */
export function startAreaSteps({ config, context, databaseUrl, log }: AreaStepOptions): () => Promise<void> {
  const pool = createGeneralPool({
    databaseUrl,
    cell: config.cell,
    connectionsMax: STEP_CONNECTIONS,
    applicationName: "sealpost steps",
    onError: (err) => log.warn({ err }, "a database connection broke"),
  });
  const objects = openObjects(config, pool);
  const tell = (news: RunNews) => context.sendToParent(news);
  const runner = startRunner({
    pool,
    objects,
    random: context.random,
    retentionMs: config.logRetentionDays * DAY_MS,
    onTaken: () => tell({ taken: 1 }),
    onError: (fault, err) => {
      tell({ fault });
      log.warn({ work: fault, err }, "runs: an error of the database or the object store; trying again");
    },
  });
  context.onParentMessage((message) => {
    tell({ share: runner.giveWayTo((message as DispatcherNews).attemptsPerSecond) });
  });
  return async () => {
    await runner.stop();
    await Promise.all([objects.close(), pool.end()]);
  };
}

/** What the steps' process tells the dispatcher, which has the metrics. */
type RunNews = { readonly taken: number } | { readonly fault: RunnerWork } | { readonly share: number };

function countRunNews({ share, taken }: RunMetrics, failed: Tally, message: unknown): void {
  const news = message as RunNews;
  if ("fault" in news) failed.add();
  else if ("share" in news) share.of({}).set(news.share);
  else taken.of({}).add(news.taken);
}

/** Never rejects; without an answer there is no value. */
async function setAge({ oldest }: MovingMetrics | RunMetrics, read: Promise<number>): Promise<void> {
  try {
    oldest.of({}).set(await read);
  } catch {
    oldest.clear();
  }
}

/** Whatever areas are on: runs may be another process's. */
export const guardPublishing: GuardPublishing = guardRuns;

/** Why the account cannot be moved to another cell, in a sentence; null: it can. Whatever areas are on. */
export async function findMoveHindrance(pool: Pool, accountId: string): Promise<string | null> {
  if (!(await hasSpaces(pool, accountId))) return null;
  return `Account ${accountId} has spaces, and stored documents cannot be moved to another cell yet.`;
}
