import type { Socket } from "node:net";
import { TargetError, type TargetErrorCode } from "./target-error.ts";

/** The abort reason when time ran out; any other reason is the caller's. */
const TIME_IS_UP = Symbol("time is up");

/** A time limit on some work, within the caller's own abort signal. */
export type Deadline = {
  /** Aborts when the time is up or the parent aborts, whichever is first. */
  readonly signal: AbortSignal;
  remainingMs(): number;
  /** Call it when the work is done, or the timer and the listener on the parent stay. */
  release(): void;
};

export function startDeadline(parent: AbortSignal, timeoutMs: number): Deadline {
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

/** The error for aborted work: the given code if time was up, `aborted` if the caller wished it. */
export function abortError(
  signal: AbortSignal,
  timeoutCode: TargetErrorCode,
  timeoutMessage: string,
): TargetError {
  return signal.reason === TIME_IS_UP
    ? new TargetError(timeoutCode, timeoutMessage)
    : new TargetError("aborted", "The connection attempt was aborted.", { cause: signal.reason });
}

/** The work's result, unless the signal aborts first; its late result is then ignored. Not started after an abort. */
export function unlessAborted<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
  toAbortError: () => TargetError,
): Promise<T> {
  if (signal.aborted) return Promise.reject(toAbortError());
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(toAbortError());
    signal.addEventListener("abort", onAbort, { once: true });
    work()
      .then(resolve, reject)
      .finally(() => signal.removeEventListener("abort", onAbort));
  });
}

export type SocketWait = {
  /** Destroys the socket at once when it aborts. */
  readonly signal: AbortSignal;
  readonly toAbortError: () => Error;
  readonly toSocketError: (error: Error) => Error;
};

/**
 * Waits for an event of a socket that is being set up. On an error or an abort the socket is destroyed. The socket
 * keeps one error listener for good: an error while it changes hands would otherwise end the process.
 */
export function untilEvent(
  socket: Socket,
  event: "connect" | "secureConnect",
  wait: SocketWait,
): Promise<void> {
  const { signal, toAbortError, toSocketError } = wait;
  socket.on("error", () => {});
  return new Promise((resolve, reject) => {
    function release(): void {
      signal.removeEventListener("abort", onAbort);
      socket.removeListener(event, onEvent);
      socket.removeListener("error", onError);
    }
    function fail(error: Error): void {
      release();
      socket.destroy();
      reject(error);
    }
    const onAbort = () => fail(toAbortError());
    const onError = (error: Error) => fail(toSocketError(error));
    const onEvent = () => {
      release();
      resolve();
    };
    if (signal.aborted) {
      onAbort();
      return;
    }
    signal.addEventListener("abort", onAbort);
    socket.on(event, onEvent);
    socket.on("error", onError);
  });
}
