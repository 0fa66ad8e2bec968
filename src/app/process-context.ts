import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import manifest from "../../package.json" with { type: "json" };

/** Of this program, as in CHANGELOG.md: `1.0.0`. */
export const version: string = manifest.version;

/** What child processes run. */
export const MAIN_FILE = fileURLToPath(new URL("../main.ts", import.meta.url));

/** Everything that a command uses of its process. src/main.ts passes it in; nothing else touches the globals. */
export type ProcessContext = {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & { readonly isTTY?: boolean };
  readonly stderr: Writable;
  /** The wall clock: Unix time in milliseconds. */
  readonly now: () => number;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly createShutdownSignal: typeof createShutdownSignal;
  readonly sendToParent: typeof sendToParent;
  readonly onParentMessage: typeof onParentMessage;
  /** The exit code of the process once the command is done; 0 unless set. */
  readonly setExitCode: (code: number) => void;
};

/**
 * For a process that stays: V8 collects everything when what is allocated outside its young generation has doubled. Its
 * own limit is a few MB at a low rate of allocations, and Node 26 takes 64 KiB for each read of a TLS connection. So a
 * dispatcher collected once a second at 100 deliveries a second, for 50 ms, and p99 was twice as long.
 */
export function collectRarely(): void {
  setFlagsFromString("--heap-growing-percent=100");
}

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

/** Calls `listener` with every message of that supervisor; never without one. */
export function onParentMessage(listener: (message: unknown) => void): void {
  process.on("message", listener);
}

/** Aborts on the first SIGTERM, SIGINT or SIGHUP. From then on the caller has to end the process. */
export function createShutdownSignal(): AbortSignal {
  const controller = new AbortController();
  // A terminal, npm and the launcher may each send one, so a second signal does not force an end.
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(signal, () => controller.abort());
  }
  return controller.signal;
}
