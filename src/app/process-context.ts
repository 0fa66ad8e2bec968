import type { Readable, Writable } from "node:stream";

/** All that a command has of the process around it. Handed in by src/main.ts, so that nothing else looks. */
export type ProcessContext = {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Writable & { readonly isTTY?: boolean };
  readonly stderr: Writable;
  /** The wall clock: Unix time in milliseconds. */
  readonly now: () => number;
  /** Evenly spread in [0, 1). */
  readonly random: () => number;
  /** Aborted once the process is asked to end. Whoever calls this ends by itself then; nobody else does it. */
  readonly untilAskedToEnd: () => AbortSignal;
  /** Sends a message to the supervisor that started this process; nothing happens when none did. */
  readonly tellParent: (message: Readonly<Record<string, unknown>>) => void;
  /** What the process ends with when the command is done. 0 unless said otherwise. */
  readonly setExitCode: (code: number) => void;
};
