import type { Socket } from "node:net";

export type SocketWait = {
  /** Destroys the socket at once when it aborts. */
  readonly cut: AbortSignal;
  readonly toCutError: () => Error;
  readonly toSocketError: (error: Error) => Error;
};

/**
 * Waits until a socket that is being set up comes to an event. On an error or a cut the socket is destroyed.
 * The socket keeps one listener for errors for good: one that comes while the socket changes hands would
 * otherwise end the process.
 */
export function untilEvent(
  socket: Socket,
  event: "connect" | "secureConnect",
  wait: SocketWait,
): Promise<void> {
  const { cut, toCutError, toSocketError } = wait;
  socket.on("error", () => {});
  return new Promise((resolve, reject) => {
    function release(): void {
      cut.removeEventListener("abort", onCut);
      socket.removeListener(event, onEvent);
      socket.removeListener("error", onError);
    }
    function fail(error: Error): void {
      release();
      socket.destroy();
      reject(error);
    }
    const onCut = () => fail(toCutError());
    const onError = (error: Error) => fail(toSocketError(error));
    const onEvent = () => {
      release();
      resolve();
    };
    if (cut.aborted) {
      onCut();
      return;
    }
    cut.addEventListener("abort", onCut);
    socket.on(event, onEvent);
    socket.on("error", onError);
  });
}
