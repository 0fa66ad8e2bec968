/** Every way in which connecting to a target can fail, in the order of the steps. */
export const TARGET_ERROR_CODES = [
  "dns_not_found",
  "dns_failed",
  "dns_timeout",
  "target_not_public",
  "connect_refused",
  "connect_timeout",
  "connect_reset",
  "connect_failed",
  "host_unreachable",
  "local_resources_exhausted",
  "tls_expired",
  "tls_not_yet_valid",
  "tls_self_signed",
  "tls_wrong_name",
  "tls_untrusted",
  "tls_version",
  "tls_not_spoken",
  "tls_protocol",
  "tls_closed",
  "tls_timeout",
  "aborted",
] as const;

/**
 * `local_resources_exhausted` (no descriptor, port or buffer left) is this machine's fault and `aborted` the caller's
 * wish; all others are the target's.
 */
export type TargetErrorCode = (typeof TARGET_ERROR_CODES)[number];

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
