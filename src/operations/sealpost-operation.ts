import type { Pool } from "pg";
import { operationDefiners } from "../api/define-operation.ts";
import type { RateLimitPolicy } from "../api/rate-limits.ts";
import type { UnsafeAllowedTargets } from "../egress/rules/unsafe-allowed-targets.ts";
import type { KeyClass } from "../model/api-keys.ts";
import type { CheckReceiver } from "../receivers/receiver-check.ts";
import type { ReadLog } from "../store/log-reader.ts";
import type { ReplayLimits } from "../store/replays.ts";
import type { DomainCode } from "./problems.ts";

/** The ways to declare an operation of this service. */
export const { read, staffRead, write, batchedWrite, callOut } = operationDefiners<DomainCode>();

/** What the operations depend on. */
export type Dependencies = {
  /** For reads: one statement each. Writes are given the connection of their transaction. */
  readonly pool: Pool;
  /** For reading the delivery log; see createLogPool. */
  readonly logPool: Pool;
  /** For lists of the log, from a standby where there is one. */
  readonly readLog: ReadLog;
  /** Opens and seals signing secrets: 32 bytes. */
  readonly secretsKey: Uint8Array;
  /** Of the keys that the API makes: those of this environment. */
  readonly apiKeyBrand: string;
  readonly apiKeyClass: KeyClass;
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  readonly analysisBytesMax: number;
  /** How long an analysis stays readable after it was published. */
  readonly analysisRetentionMs: number;
  /** How many bulk replays an account may have running. */
  readonly replayLimits: ReplayLimits;
  /** Sends probes to a receiver; see src/receivers/. */
  readonly checkReceiver: CheckReceiver;
  /** How often one account may have that done. */
  readonly checkPolicy: RateLimitPolicy;
  /** URL under which clients reach the service, without /v1. */
  readonly publicUrl: string;
  /** Origins that may show the console in a frame. */
  readonly consoleAncestors: readonly string[];
  /** Whether this installation has a mail server for notices. */
  readonly sendsMail: boolean;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};
