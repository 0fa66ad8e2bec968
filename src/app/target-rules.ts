import type { Config } from "../config/config.ts";
import { ConfigError } from "../config/config-error.ts";
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
 * What the configuration says about targets, in the form that src/egress/ takes.
 * @throws ConfigError for an entry that looks right but that no URL is ever spelled like, such as `127.1:8443`.
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

/** What UNSAFE_ALLOWED_TARGETS lifts. */
const LIFTED: readonly TargetRefusalCode[] = ["name_not_public", "address_not_public", "port_not_allowed"];

/** The mistake that a URL is which webhooks may not go to; where that is possible, how tests get there all the same. */
export function refusedTarget(
  { code, message }: { readonly code: TargetRefusalCode; readonly message: string },
  { environment }: Config,
): UsageError {
  const isLifted = environment === "development" && LIFTED.includes(code);
  const hint = " For tests on this machine, see `sealpost receiver listen --help`.";
  return new UsageError(isLifted ? `${message}${hint}` : message);
}

/** @throws ConfigError as `targetRulesOf` does. */
export function unsafeAllowedTargetsOf(config: Config): UnsafeAllowedTargets {
  try {
    return parseUnsafeAllowedTargets(config.unsafeAllowedTargets?.join(",") ?? "");
  } catch (error) {
    throw new ConfigError([`UNSAFE_ALLOWED_TARGETS cannot be used: ${(error as Error).message}`]);
  }
}
