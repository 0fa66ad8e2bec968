import { once } from "node:events";
import type { Socket } from "node:net";
import type { ConnectError } from "../egress.ts";

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
  const end = () => controller.abort();
  const timer = setTimeout(end, timeoutMs);
  if (parent.aborted) end();
  else parent.addEventListener("abort", end, { once: true });
  return {
    signal: controller.signal,
    remainingMs: () => Math.max(0, endsAtMs - performance.now()),
    release() {
      clearTimeout(timer);
      parent.removeEventListener("abort", end);
    },
  };
}

/** The work's result, unless the signal aborts first; its late result is then ignored. Not started after an abort. */
export function unlessAborted<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
  toAbortError: () => ConnectError,
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

/**
 * Waits for an event of a socket that is being set up. On an error or an abort the socket is destroyed. The socket
 * keeps one error listener for good: an error while it changes hands would otherwise end the process.
 */
export async function untilEvent(
  socket: Socket,
  event: "connect" | "secureConnect",
  signal: AbortSignal,
  toAbortError: () => ConnectError,
  toSocketError: (error: Error) => ConnectError,
): Promise<void> {
  socket.on("error", () => {});
  try {
    await once(socket, event, { signal });
  } catch (error) {
    socket.destroy();
    throw signal.aborted ? toAbortError() : toSocketError(error as Error);
  }
}
