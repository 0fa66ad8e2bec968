import { setPriority } from "node:os";
import type { Pool } from "pg";
import type { Logger } from "pino";
import type { ApiPart } from "../api/operations.ts";
import type { Config } from "../base/config/config.ts";
import { createGeneralPool } from "../base/database/pools.ts";
import { createMovingMetrics, createRunMetrics, type RunMetrics } from "../base/metrics/workspace-metrics.ts";
import type { Area } from "../base/model/areas.ts";
import { abortableDelay } from "../base/model/backoff.ts";
import type { QuotaUse } from "../base/model/storage.ts";
import { DAY_MS } from "../base/model/time.ts";
import type { ProcessMetrics } from "../delivery/process-metrics.ts";
import { eraseWorkspace, startMover } from "../workspace/moving/mover.ts";
import { knownStore, openObjectStore } from "../workspace/objects/known-store.ts";
import type { ObjectStore } from "../workspace/objects/object-store.ts";
import { workspacePart } from "../workspace/operations/workspace-part.ts";
import { type RunnerWork, startRunner } from "../workspace/running/runner.ts";
import { readOldestMove } from "../workspace/store/moves.ts";
import { findWorkflowDeliveries } from "../workspace/store/origins.ts";
import { hasRuns } from "../workspace/store/runs.ts";
import { readOldestReadyStep } from "../workspace/store/steps.ts";
import {
  hasSpaces,
  isInstalled,
  readQuotas,
  readStoreId,
  settleStoreId,
} from "../workspace/store/storage.ts";
import { poolOptions, STEP_CONNECTIONS } from "./database.ts";
import { sample } from "./monitoring.ts";
import { type Dependencies, webhooksPart } from "./operations.ts";
import type { ProcessContext } from "./process-context.ts";
import { type ChildEvent, supervise } from "./supervisor.ts";

/** Returns how much there was, and how many objects are looked for once more within a day. */
export type EraseFromAreas = (
  pool: Pool,
  config: Config,
  accountId: string,
  onPage: (what: string) => void,
) => Promise<{ readonly gone: number; readonly left: number }>;

export type AreaOptions = {
  readonly config: Config;
  readonly dependencies: Dependencies;
  /** What an area needs besides the database did not answer. */
  readonly onAway: (error: Error) => void;
};

/**
 * What each area adds to the API, in the order of the areas. This file alone knows the workspace; a test builds the
 * service without it.
 */
export function apiPartsOf(options: AreaOptions): readonly ApiPart[] {
  const { config, dependencies, onAway: onObjectsAway } = options;
  const { pool, unsafeAllowedTargets, publicUrl, secretsKey } = dependencies;
  const { pagesUrl } = config;
  const workflows: Pick<Dependencies, "findWorkflowDeliveries"> = config.areas.includes("workspace")
    ? { findWorkflowDeliveries: (...asked) => findWorkflowDeliveries(pool, ...asked) }
    : {};
  const parts: Readonly<Record<Area, () => ApiPart>> = {
    webhooks: () => webhooksPart({ ...dependencies, ...workflows }),
    workspace: () => {
      const objects = openObjects(config, pool);
      const common = { pool, objects, onObjectsAway, unsafeAllowedTargets };
      return workspacePart({ ...common, pagesUrl, publicUrl, secretsKey });
    },
  };
  return config.areas.map((area) => parts[area]());
}

/** Opened when it is first used, and used once it is known to be the one that all processes have. */
function openObjects(config: Config, pool: Pool): ObjectStore {
  return knownStore((isNew) => openObjectStore(config, isNew), {
    read: () => readStoreId(pool),
    settle: (findId) => settleStoreId(pool, findId),
  });
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
export function startAreaChecks(
  options: Pick<AreaWorkOptions, "config" | "pool" | "log">,
): () => Promise<void> {
  const { config, pool, log } = options;
  if (!config.areas.includes("workspace")) return async () => undefined;
  const stopping = new AbortController();
  const objects = openObjects(config, pool);
  const checked = objects.check(stopping.signal).finally(() => objects.close());
  const checking = checked.catch((err: unknown) => {
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

/** Starts what areas have to do beside a dispatcher. Returns what ends it. */
export function startAreaWork(options: AreaWorkOptions): () => Promise<void> {
  const { config, context, pool, log, metrics } = options;
  if (!config.areas.includes("workspace")) return async () => undefined;
  const counted = createMovingMetrics(metrics.registry);
  const runs = createRunMetrics(metrics.registry);
  for (const [{ oldest }, read] of [
    [counted, readOldestMove],
    [runs, readOldestReadyStep],
  ] as const) {
    const sampled = { gauges: [oldest], read: async () => oldest.of({}).set(await read(pool)) };
    metrics.registry.onRead(async () => void (await sample(sampled)));
  }
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
  const stopSteps = keepStepProcess(options, runs);
  return async () => {
    await Promise.all([stopMover(), stopSteps()]);
    await objects.close();
  };
}

/** Webhooks come first. At 19, the most there is, a busy machine left a step no time even to be given back. */
const NICENESS = 10;
/** How often it is told what the dispatcher does. */
const TELL_EVERY_MS = 500;
/** How soon the very first run is noticed. From then on there is a process that looks by itself. */
const LOOK_EVERY_MS = 3_000;
/** Steps are given back within milliseconds, unless the machine is busy. */
const GRACE_MS = 10_000;

/**
 * Keeps a process running for what areas compute: a text of a megabyte would hold up a dispatcher's webhooks for half a
 * second. Who has no such work has no such process. It ends with this one. Returns what ends it.
 */
function keepStepProcess(options: AreaWorkOptions, runs: RunMetrics): () => Promise<void> {
  const { context, log, countAttempts } = options;
  const failed = options.metrics.faults.of({ work: "runs" });
  // Until there is a process of steps, nothing is kept from it.
  runs.share.of({}).set(1);
  const stopping = new AbortController();
  let child: Extract<ChildEvent, { kind: "started" }> | null = null;

  function onEvent(event: ChildEvent): void {
    switch (event.kind) {
      case "started":
        child = event;
        changePriority(event.pid, NICENESS);
        log.info({ steps_pid: event.pid }, "the step process started");
        return;
      case "message": {
        const news = event.message as RunNews;
        if ("fault" in news) failed.add();
        else if ("share" in news) runs.share.of({}).set(news.share);
        else runs.taken.of({}).add(news.taken);
        return;
      }
      case "ended": {
        // The number may be another process's by now.
        child = null;
        const { how, restartInMs: restart_in_ms } = event;
        if (restart_in_ms === null) {
          log.info({ how }, "the step process ended");
          return;
        }
        failed.add();
        runs.share.clear();
        log.warn({ how, restart_in_ms }, "the step process died; starting it again");
        return;
      }
      default:
        throw new Error(`An event of unknown kind: ${JSON.stringify(event satisfies never)}`);
    }
  }

  // What it is at is given back within its grace, beside whatever else is at work. Only root may raise a priority.
  stopping.signal.addEventListener("abort", () => child !== null && changePriority(child.pid, 0));
  const running = untilWanted(options, stopping.signal).then(async () => {
    if (stopping.signal.aborted) return;
    let before = { count: countAttempts(), atMs: performance.now() };
    const telling = setInterval(() => {
      const now = { count: countAttempts(), atMs: performance.now() };
      const attemptsPerSecond = ((now.count - before.count) * 1_000) / (now.atMs - before.atMs);
      child?.send({ attemptsPerSecond } satisfies DispatcherNews);
      before = now;
    }, TELL_EVERY_MS);
    const code = await supervise({
      children: [{ name: "steps", args: ["dispatch", "--area-steps"], env: context.env }],
      shutdown: stopping.signal,
      onEvent,
      graceMs: GRACE_MS,
      random: context.random,
    });
    clearInterval(telling);
    if (code !== 0) log.error({ code }, "the step process cannot be started: runs make no progress");
  });
  return async () => {
    stopping.abort();
    await running;
  };
}

/** Where the system lets it. As soon as the process is there: threads begin with the priority of who starts them. */
function changePriority(pid: number, niceness: number): void {
  try {
    setPriority(pid, niceness);
  } catch {
    // It works all the same.
  }
}

async function untilWanted({ pool, log }: AreaWorkOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      if (await hasRuns(pool)) return;
    } catch (err) {
      if (!signal.aborted) log.warn({ err }, "runs: an error of the database; trying again");
    }
    await abortableDelay(LOOK_EVERY_MS, signal);
  }
}

/** What the steps' process is told. */
type DispatcherNews = { readonly attemptsPerSecond: number };

/** Does what areas have for a process of its own, beside a dispatcher's. Returns what ends it. */
export function startAreaSteps(
  config: Config,
  context: ProcessContext,
  databaseUrl: string,
  log: Logger,
): () => Promise<void> {
  const pool = createGeneralPool({
    ...poolOptions(config, databaseUrl, "sealpost steps", log),
    connectionsMax: STEP_CONNECTIONS,
  });
  const objects = openObjects(config, pool);
  const tell = (news: RunNews) => context.sendToParent(news);
  const runner = startRunner({
    pool,
    objects,
    random: context.random,
    // A day longer than the log: until its last retry a delivery asks the run whose URL it has.
    retentionMs: (config.logRetentionDays + 1) * DAY_MS,
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

/** Whatever areas are on: runs may be another process's. */
export { eraseFromRuns, guardPublishing, idsOfRuns, seesRun } from "../workspace/store/awaited-analyses.ts";

/** Why the account cannot be moved to another cell, in a sentence; null: it can. Whatever areas are on. */
export async function findMoveHindrance(pool: Pool, accountId: string): Promise<string | null> {
  if (!(await hasSpaces(pool, accountId))) return null;
  return `Account ${accountId} has spaces, and stored documents cannot be moved to another cell yet.`;
}

/** What the account has of its quotas, whatever areas are on. Null: the workspace was never installed. */
export async function findQuotas(pool: Pool, accountId: string): Promise<readonly QuotaUse[] | null> {
  return (await isInstalled(pool)) ? await readQuotas(pool, accountId) : null;
}

/** Deletes what areas have of an account that is erased, whatever areas are on. */
export const eraseFromAreas: EraseFromAreas = async (pool, config, accountId, onPage) => {
  if (!(await isInstalled(pool))) return { gone: 0, left: 0 };
  const objects = openObjects(config, pool);
  try {
    return await eraseWorkspace({ pool, objects }, accountId, onPage);
  } finally {
    await objects.close();
  }
};
