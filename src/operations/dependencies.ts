import type { Pool } from "pg";
import type { RateLimitPolicy } from "../api/rate-limits.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import type { CheckReceiver } from "../receivers/receiver-check.ts";

/** What the operations need of the world; handed in where the API is put together. */
export type Dependencies = {
  /** For reads: one statement each. Writes are given the connection of their transaction. */
  readonly pool: Pool;
  /** For reading the delivery log; see createLogPool. */
  readonly logPool: Pool;
  /** Opens and seals signing secrets: 32 bytes. */
  readonly secretsKey: Uint8Array;
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  readonly analysisBytesMax: number;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
  /** Sends probes to a receiver; see src/receivers/. */
  readonly checkReceiver: CheckReceiver;
  /** How often one account may have that done. */
  readonly checkPolicy: RateLimitPolicy;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};
