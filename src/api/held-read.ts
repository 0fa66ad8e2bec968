import type { AccountNews } from "./account-news.ts";
import { ANSWER_WITHIN_MS } from "./limits.ts";
import type { ErasedRequest, ErasedResult, ErasedWait } from "./operation.ts";

export type HeldRead = {
  readonly waits: ErasedWait;
  readonly news: AccountNews;
  readonly valid: ErasedRequest;
  /** One look, with so much time for it. */
  readonly look: (withinMs: number) => Promise<ErasedResult>;
  /** Calls back when nobody waits for the answer any more. */
  readonly onGone: ((end: () => void) => void) | undefined;
};

/**
 * Looks, and where there is nothing to read, waits to be told and looks again. Watching begins before the first look,
 * so nothing is missed between the two; whoever is told nothing looks once. Each look has the time that any answer has;
 * the waiting is on top of it.
 */
export async function holdRead(read: HeldRead, firstWithinMs: number): Promise<ErasedResult> {
  const { waits, news, valid, look, onGone } = read;
  const waitMs = waits.waitMs(valid);
  const watch = waitMs > 0 ? news.watch(valid.accountId) : null;
  if (watch === null) return await look(firstWithinMs);
  onGone?.(() => watch.end());
  try {
    const startedAt = performance.now();
    let result = await look(firstWithinMs);
    while (waits.isEmpty(result)) {
      const leftMs = waitMs - (performance.now() - startedAt);
      if (leftMs <= 0 || !(await watch.news(leftMs))) return result;
      result = await look(ANSWER_WITHIN_MS);
    }
    return result;
  } finally {
    watch.end();
  }
}
