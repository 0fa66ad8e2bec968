import type { TLSSocket } from "node:tls";
import type { CONNECT_ERRORS, TLS_ERRORS } from "../base/model/error-codes.ts";
import type { AllowAnswer } from "./connect/reading.ts";
import type { UnsafeAllowedTargets } from "./rules/host.ts";

/** `hostname` as in a judged URL: an IPv6 address stands in brackets. */
export type Target = {
  readonly hostname: string;
  readonly port: number;
  /** Who waits when reading from one of its hosts takes long: an account. Absent: the host's alone. */
  readonly payer?: string | undefined;
  readonly admit?: Admit | undefined;
};

/**
 * Asked before each connection to an address, or to the host name where a proxy looks it up, for a receiver that has
 * proven nothing. It rejects with a ConnectError where none may be made now.
 */
export type Admit = (address: string) => Promise<void>;

/**
 * Opens a verified TLS connection to a checked address of the target; the caller owns the socket. Aborting the signal
 * ends the attempt at once, with the time-out of the step that it was at.
 * @throws ConnectError with its `progress`
 */
export type Connect = (target: Target, signal: AbortSignal) => Promise<OpenedConnection>;

export type OpenedConnection = Readonly<ConnectProgress> & {
  readonly socket: TLSSocket;
  readonly allowAnswer: AllowAnswer;
};

/** How far a connection got. */
export type ConnectProgress = {
  /** The checked address; null if a proxy chose it. */
  remoteAddress: string | null;
  /**
   * Milliseconds; null for a step that was not finished. A proxy resolves the name itself: then `dnsMs` stays null, and
   * `connectMs` is how long the tunnel took.
   */
  timings: { dnsMs: number | null; connectMs: number | null; tlsMs: number | null };
};

/** The only way out to targets, for deliveries and for the receiver check. */
export type Egress = {
  readonly connect: Connect;
  /** The same that `connect` was made with: kept connections are judged by them at each use. */
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
};

/**
 * Every way in which a connection to a target can fail. `local_resources_exhausted` (no descriptor, port or buffer
 * left) is this machine's fault and `egress_proxy_failed` the proxy's, and `not_proven` means that it is not the
 * receiver's turn; all others are the target's.
 */
export type ConnectErrorCode =
  | keyof typeof CONNECT_ERRORS
  | keyof typeof TLS_ERRORS
  | "local_resources_exhausted"
  | "not_proven"
  | "egress_proxy_failed";

/** Nothing was sent. The message is shown to whoever gave the URL; the cause is for the log only. */
export class ConnectError extends Error {
  override readonly name = "ConnectError";
  readonly code: ConnectErrorCode;
  /** Null unless a connector threw it. */
  progress: ConnectProgress | null = null;
  /** Of `not_proven`: nobody has said in time whose turn it is, which says nothing of the address. */
  readonly isUndecided: boolean;

  constructor(
    code: ConnectErrorCode,
    message: string,
    options: ErrorOptions & { isUndecided?: boolean } = {},
  ) {
    super(message, options);
    this.code = code;
    this.isUndecided = options.isUndecided ?? false;
  }
}
