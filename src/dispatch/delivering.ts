import type { Config } from "../config/config.ts";
import type { Egress } from "../egress/egress.ts";
import { createPoster } from "../egress/post/post.ts";
import { DatabaseClock } from "./database-clock.ts";
import type { Delivering } from "./deliver.ts";
import { DeliveryTargets } from "./delivery-target.ts";
import { SigningKeys } from "./signing-keys.ts";

export type DeliveringOptions = {
  readonly config: Config;
  readonly egress: Egress;
  /** 32 bytes: what signing secrets are sealed with. */
  readonly secretsKey: Uint8Array;
  /** Uniform in [0, 1). */
  readonly random: () => number;
};

/** All that one delivery's attempt needs, made from the configuration. */
export function createDelivering(options: DeliveringOptions): Delivering {
  const { config, egress } = options;
  const now = () => performance.now();
  return {
    targets: new DeliveryTargets(egress.unsafeAllowedTargets),
    keys: new SigningKeys(options.secretsKey),
    poster: createPoster({ egress, now }),
    clock: new DatabaseClock(now),
    random: options.random,
    policy: { windowMs: config.retryWindowSeconds * 1000, attempts: config.retryAttempts },
    deadlineMs: config.attemptDeadlineMs,
    analysisRetentionMs: config.analysisRetentionSeconds * 1000,
  };
}
