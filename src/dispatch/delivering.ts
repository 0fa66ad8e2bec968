import type { Config } from "../config/config.ts";
import { DatabaseClock } from "./database-clock.ts";
import type { Delivering } from "./deliver.ts";
import { DeliveryTargets } from "./delivery-target.ts";
import { createPoster } from "./post.ts";
import { SigningKeys } from "./signing-keys.ts";
import { createTargetConnect } from "./target-connect.ts";

export type DeliveringOptions = {
  readonly config: Config;
  /** 32 bytes: what signing secrets are sealed with. */
  readonly secretsKey: Uint8Array;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

/** All that one delivery's attempt needs, made from the configuration. */
export function createDelivering(options: DeliveringOptions): Delivering {
  const { config } = options;
  const now = () => performance.now();
  const { connect, unsafeAllowedTargets } = createTargetConnect(config);
  return {
    targets: new DeliveryTargets(unsafeAllowedTargets),
    keys: new SigningKeys(options.secretsKey),
    poster: createPoster({ connect, unsafeAllowedTargets, now }),
    clock: new DatabaseClock(now),
    random: options.random,
    policy: { windowMs: config.retryWindowSeconds * 1000, attempts: config.retryAttempts },
    deadlineMs: config.attemptDeadlineMs,
    analysisRetentionMs: config.analysisRetentionSeconds * 1000,
  };
}
