/**
 * Ties this process to the launcher or supervisor that started it: when that one ends, however it ends, the
 * channel between them closes, and this process is asked to end as by SIGTERM. Nothing happens without a channel.
 */
export function endWithParent(): void {
  process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
  // The channel alone is no reason to stay.
  process.channel?.unref();
}

/** Tells it something; when it is gone already, nobody needs to hear it. */
export function tellParent(message: Readonly<Record<string, unknown>>): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

/** Aborted by the first of the signals that ask a process to end. */
export function untilAskedToEnd(): AbortSignal {
  const controller = new AbortController();
  // A terminal, npm and the launcher may each send one: a second is no wish to end sooner.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => controller.abort());
  }
  return controller.signal;
}
