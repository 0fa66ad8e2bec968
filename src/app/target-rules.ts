import { type Config, ConfigError } from "../config/config.ts";
import { createResolver, type Resolver } from "../egress/dns/resolver.ts";
import type { TargetRefusalCode } from "../egress/rules/target-url.ts";
import {
  parseUnsafeAllowedTargets,
  type UnsafeAllowedTargets,
} from "../egress/rules/unsafe-allowed-targets.ts";
import { UsageError } from "./usage-error.ts";

export type TargetRules = {
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  readonly resolver: Resolver;
  readonly ownAddresses: readonly string[];
};

/**
 * The rules for targets from the configuration, in the form that src/egress/ takes.
 * @throws ConfigError for an entry that no normalized URL can match, such as `127.1:8443`
 */
export function targetRulesOf(config: Config): TargetRules {
  return {
    unsafeAllowedTargets: unsafeAllowedTargetsOf(config),
    resolver: createResolver({
      servers: config.targetDnsServers ?? undefined,
      timeoutMs: config.connectTimeoutMs,
      now: () => performance.now(),
    }),
    ownAddresses: config.ownAddresses ?? [],
  };
}

/** The refusals that UNSAFE_ALLOWED_TARGETS can lift. */
const LIFTABLE: readonly TargetRefusalCode[] = ["name_not_public", "address_not_public", "port_not_allowed"];

/** The error for a URL that webhooks may not go to; where tests can get around it, with a hint how. */
export function refusedTarget(
  { code, message }: { readonly code: TargetRefusalCode; readonly message: string },
  { environment }: Config,
): UsageError {
  const canBeLifted = environment === "development" && LIFTABLE.includes(code);
  const hint = " For tests on this machine, see `sealpost receiver listen --help`.";
  return new UsageError(canBeLifted ? `${message}${hint}` : message);
}

/** @throws ConfigError as `targetRulesOf` does */
export function unsafeAllowedTargetsOf(config: Config): UnsafeAllowedTargets {
  try {
    return parseUnsafeAllowedTargets(config.unsafeAllowedTargets?.join(",") ?? "");
  } catch (error) {
    throw new ConfigError([`UNSAFE_ALLOWED_TARGETS cannot be used: ${(error as Error).message}`]);
  }
}
