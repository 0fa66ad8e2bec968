import { readFileSync } from "node:fs";
import type { Config } from "../config/config.ts";
import { createConnector } from "../target/connector.ts";
import { createResolver } from "../target/resolver.ts";
import { parseUnsafeAllowedTargets } from "../target/unsafe-allowed-targets.ts";
import { DatabaseClock } from "./database-clock.ts";
import type { Delivering } from "./deliver.ts";
import { DeliveryTargets } from "./delivery-target.ts";
import { createPoster } from "./post.ts";
import { SigningKeys } from "./signing-keys.ts";

const DNS_TIMEOUT_MS = 3_000;

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
  const unsafeAllowedTargets = parseUnsafeAllowedTargets((config.unsafeAllowedTargets ?? []).join(","));
  const connect = createConnector({
    resolver: createResolver({
      timeoutMs: DNS_TIMEOUT_MS,
      now,
      ...(config.targetDnsServers === null ? {} : { servers: config.targetDnsServers }),
    }),
    unsafeAllowedTargets,
    connectTimeoutMs: config.connectTimeoutMs,
    ...(config.targetCaFile === null ? {} : { ca: readFileSync(config.targetCaFile, "utf8") }),
    ...(config.ownAddresses === null ? {} : { ownAddresses: config.ownAddresses }),
  });
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
