import type { CONNECT_ERRORS, TLS_ERRORS } from "../../base/model/error-codes.ts";

/**
 * Every way in which a connection to a target can fail. `local_resources_exhausted` (no descriptor, port or buffer
 * left) is this machine's fault and `aborted` the caller's wish; all others are the target's.
 */
export type TargetErrorCode =
  | keyof typeof CONNECT_ERRORS
  | keyof typeof TLS_ERRORS
  | "local_resources_exhausted"
  | "aborted";

/** Milliseconds each step took; null for a step that was not finished. */
export type ConnectTimings = { dnsMs: number | null; connectMs: number | null; tlsMs: number | null };

/** How far a connection got before it failed. */
export type ConnectProgress = { remoteAddress: string | null; timings: ConnectTimings };

export class TargetError extends Error {
  override readonly name = "TargetError";
  readonly code: TargetErrorCode;
  /** Null unless a connector threw it. */
  progress: ConnectProgress | null = null;

  constructor(code: TargetErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
