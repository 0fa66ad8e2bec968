import type { Readable, Writable } from "node:stream";

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
  /** A signal that aborts when the process is asked to end. From then on the caller has to end it. */
  readonly createShutdownSignal: () => AbortSignal;
  /** Sends a message to the supervisor that started this process; does nothing without one. */
  readonly sendToParent: (message: Readonly<Record<string, unknown>>) => void;
  /** Called with every message of that supervisor; never without one. */
  readonly onParentMessage: (listener: (message: unknown) => void) => void;
  /** The exit code of the process once the command is done; 0 unless set. */
  readonly setExitCode: (code: number) => void;
};
