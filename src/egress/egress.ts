import type { Connect } from "./post/connection.ts";
import type { UnsafeAllowedTargets } from "./rules/unsafe-allowed-targets.ts";

/** The one way out to targets. */
export type Egress = {
  readonly connect: Connect;
  /** Those that `connect` was made with. */
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
};
