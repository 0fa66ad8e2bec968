import type { Pool } from "pg";
import { DAY_MS } from "../../model/time.ts";
import { abortableDelay } from "../../schedule/backoff.ts";
import type { ObjectStore } from "../objects/object-store.ts";
import { claimMove } from "../store/moves.ts";
import { advanceMove } from "./move-step.ts";
import { removeLoose } from "./removal.ts";

/** How soon a rename is noticed. */
const LOOK_EVERY_MS = 1_000;
const REMOVE_EVERY_MS = 10_000;
const CLEAN_EVERY_MS = 3_600_000;
/** Nobody else takes a step that is being taken; one that failed, or whose process died, is taken again then. */
const STEP_LEASE_MS = 30_000;
/** What a put has not gone on with for so long. */
const UNFINISHED_KEPT_MS = DAY_MS;

export type MoverWork = "move" | "remove" | "clean";

export type MoverOptions = {
  readonly pool: Pool;
  readonly objects: ObjectStore;
  /** How long the old object of what was moved is kept. */
  readonly keptMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly onMoved: (count: number) => void;
  readonly onRemoved: (count: number) => void;
  readonly onLost: (document: { readonly accountId: string; readonly documentId: string }) => void;
  readonly onError: (work: MoverWork, error: unknown) => void;
  /** Absent: a second. */
  readonly lookEveryMs?: number;
};

/**
 * Brings objects to where the names say, and removes what nobody needs. Any number of processes may run one: the rows
 * of `workspace.moves` are the truth, and each step is one process's. Jobs of graphile-worker were the other way: they
 * would have to be kept in step with rows that are needed all the same.
 */
export class Mover {
  readonly #options: MoverOptions;
  readonly #stopping = new AbortController();
  #loop: Promise<unknown> = Promise.resolve();
  #removedAt = Number.NEGATIVE_INFINITY;
  #cleanedAt = Number.NEGATIVE_INFINITY;

  constructor(options: MoverOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = Promise.all([this.#move(), this.#tidy()]);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#loop;
  }

  async #move(): Promise<void> {
    const { signal } = this.#stopping;
    const { pool, objects, keptMs, onMoved, onLost, onError, lookEveryMs = LOOK_EVERY_MS } = this.#options;
    const onUncopied = (error: Error) => onError("move", error);
    while (!signal.aborted) {
      const hasMore = await this.#try("move", async () => {
        const move = await claimMove(pool, STEP_LEASE_MS);
        if (move === null) return false;
        onMoved(await advanceMove({ pool, objects, keptMs, onLost, onUncopied, signal }, move));
        return true;
      });
      if (!hasMore) await abortableDelay(lookEveryMs, signal);
    }
  }

  async #tidy(): Promise<void> {
    const { signal } = this.#stopping;
    const { pool, objects, now, onRemoved, lookEveryMs = LOOK_EVERY_MS } = this.#options;
    while (!signal.aborted) {
      if (performance.now() - this.#removedAt >= Math.min(REMOVE_EVERY_MS, 10 * lookEveryMs)) {
        const removed = await this.#try("remove", () => removeLoose({ pool, objects }, signal));
        onRemoved(removed?.count ?? 0);
        if (removed?.isFull) continue;
        this.#removedAt = performance.now();
      }
      if (performance.now() - this.#cleanedAt >= CLEAN_EVERY_MS) {
        this.#cleanedAt = performance.now();
        const before = new Date(now() - UNFINISHED_KEPT_MS);
        await this.#try("clean", () => objects.removeLeftovers(before, signal));
      }
      await abortableDelay(lookEveryMs, signal);
    }
  }

  async #try<T>(work: MoverWork, does: () => Promise<T>): Promise<T | undefined> {
    try {
      return await does();
    } catch (error) {
      if (!this.#stopping.signal.aborted) this.#options.onError(work, error);
      return undefined;
    }
  }
}
