/**
 * Ends this process with the launcher or supervisor that started it: when that one ends, even by SIGKILL, the channel
 * between them closes, and this process gets a SIGTERM. Does nothing without a channel.
 */
export function endWithParent(): void {
  process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
  // The channel alone must not keep the process alive.
  process.channel?.unref();
}

/** Sends a message to the supervisor that started this process, if there is one and it still runs. */
export function sendToParent(message: Readonly<Record<string, unknown>>): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

/** Calls `listener` with every message of that supervisor. */
export function onParentMessage(listener: (message: unknown) => void): void {
  process.on("message", listener);
}

/** Aborts on the first SIGTERM, SIGINT or SIGHUP. */
export function createShutdownSignal(): AbortSignal {
  const controller = new AbortController();
  // A terminal, npm and the launcher may each send one, so a second signal does not force an end.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => controller.abort());
  }
  return controller.signal;
}
