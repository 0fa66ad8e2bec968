import { TargetError, type TargetErrorCode } from "./target-error.ts";

/** The reason of a cut that time made; any other reason is the caller's. */
const TIME_IS_UP = Symbol("time is up");

export type Cutoff = {
  /** Aborts when the time is up or the parent aborts, whichever is first. */
  readonly signal: AbortSignal;
  remainingMs(): number;
  /** To be called when the work is over, or the timer and the parent's listener stay. */
  release(): void;
};

/** A bound on some work: a time in milliseconds, within a parent's bound. */
export function startCutoff(parent: AbortSignal, timeoutMs: number): Cutoff {
  const controller = new AbortController();
  const endsAtMs = performance.now() + timeoutMs;
  const timer = setTimeout(() => controller.abort(TIME_IS_UP), timeoutMs);
  const forward = () => controller.abort(parent.reason);
  if (parent.aborted) forward();
  else parent.addEventListener("abort", forward, { once: true });
  return {
    signal: controller.signal,
    remainingMs: () => Math.max(0, endsAtMs - performance.now()),
    release() {
      clearTimeout(timer);
      parent.removeEventListener("abort", forward);
    },
  };
}

/** What to report for work that was cut: the given code if time was up, `aborted` if the caller wished it. */
export function cutError(
  cut: AbortSignal,
  timeoutCode: TargetErrorCode,
  timeoutMessage: string,
): TargetError {
  return cut.reason === TIME_IS_UP
    ? new TargetError(timeoutCode, timeoutMessage)
    : new TargetError("aborted", "The connection was given up before it came about.", { cause: cut.reason });
}

/** The work's result, unless the cut comes first; the work goes on unheard then. After a cut it is not begun. */
export function beforeCut<T>(
  work: () => Promise<T>,
  cut: AbortSignal,
  toCutError: () => TargetError,
): Promise<T> {
  if (cut.aborted) return Promise.reject(toCutError());
  return new Promise((resolve, reject) => {
    const onCut = () => reject(toCutError());
    cut.addEventListener("abort", onCut, { once: true });
    work()
      .then(resolve, reject)
      .finally(() => cut.removeEventListener("abort", onCut));
  });
}
