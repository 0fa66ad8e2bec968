import { readFileSync } from "node:fs";
import { type Config, ConfigError } from "../base/config/config.ts";
import { createDirectConnector } from "../egress/connect/direct-connector.ts";
import { createProxyConnector } from "../egress/connect/proxy-connector.ts";
import { createResolver, type Resolver } from "../egress/dns/resolver.ts";
import type { Egress } from "../egress/egress.ts";
import { parseUnsafeAllowedTargets } from "../egress/rules/host.ts";
import type { TargetRefusalCode } from "../egress/rules/target-url.ts";
import { type CheckReceiver, createReceiverCheck } from "../receivers/receiver-check.ts";
import { UsageError } from "./output.ts";

const DNS_TIMEOUT_MS = 3_000;
/** For DNS, TCP and TLS together. A proxy does the first two, within a time of its own that must be shorter. */
const CONNECT_TIMEOUT_MS = 5_000;
const CONNECT_BY_PROXY_TIMEOUT_MS = 10_000;

/** Never longer than an attempt. */
export function connectTimeoutOf({ egressProxyUrl, attemptDeadlineMs }: Config): number {
  const usual = egressProxyUrl === null ? CONNECT_TIMEOUT_MS : CONNECT_BY_PROXY_TIMEOUT_MS;
  return Math.min(usual, attemptDeadlineMs);
}

/**
 * The only way out to targets, as configured: directly to checked addresses, or through a proxy.
 * @param ca certificates in PEM that are trusted besides the public ones; absent: those of TARGET_CA_FILE
 * @throws ConfigError for an entry of UNSAFE_ALLOWED_TARGETS or a file of certificates that cannot be used
 */
export function createEgress(
  config: Config,
  connectTimeoutMs = connectTimeoutOf(config),
  ca = readCertificates(config),
): Egress {
  const { egressProxyUrl, targetCaFile } = config;
  const rules = targetRulesOf(config);
  try {
    const common = { ca, connectTimeoutMs };
    const connect =
      egressProxyUrl === null
        ? createDirectConnector({
            ...rules,
            ...common,
            resolver: createTargetResolver(config, DNS_TIMEOUT_MS),
          })
        : createProxyConnector({ ...common, proxyUrl: new URL(egressProxyUrl) });
    return { connect, unsafeAllowedTargets: rules.unsafeAllowedTargets };
  } catch (error) {
    if (ca === undefined) throw error;
    throw new ConfigError([`TARGET_CA_FILE (${targetCaFile}) cannot be used: ${(error as Error).message}`]);
  }
}

function readCertificates({ targetCaFile }: Config): string | undefined {
  if (targetCaFile === null) return undefined;
  try {
    return readFileSync(targetCaFile, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError([`TARGET_CA_FILE (${targetCaFile}) cannot be read (${code}).`]);
  }
}

export type TargetRules = ReturnType<typeof targetRulesOf>;

/**
 * What the configuration says about where webhooks may go.
 * @throws ConfigError for an entry that looks right but that no URL is ever spelled like, such as `127.1:8443`
 */
export function targetRulesOf(config: Config) {
  try {
    return {
      unsafeAllowedTargets: parseUnsafeAllowedTargets(config.unsafeAllowedTargets ?? []),
      ownAddresses: config.ownAddresses ?? [],
    };
  } catch (error) {
    throw new ConfigError([`UNSAFE_ALLOWED_TARGETS cannot be used: ${(error as Error).message}`]);
  }
}

/**
 * The receiver check, with the same egress and deadline as every delivery.
 * @param ca as of `createEgress`
 * @throws ConfigError when the egress cannot be made from the configuration
 */
export function createReceiverChecking(config: Config, ca?: string): CheckReceiver {
  const create = () => createEgress(config, undefined, ca);
  // Made once to no use, so that a bad configuration is refused at start and not at the first check.
  create();
  return createReceiverCheck({
    createEgress: create,
    deadlineMs: config.attemptDeadlineMs,
    publicUrl: config.publicUrl,
    challenges: config.targetConsent === "challenge",
  });
}

/** `timeoutMs`: for one name. */
export function createTargetResolver(config: Config, timeoutMs: number): Resolver {
  return createResolver({
    servers: config.targetDnsServers ?? undefined,
    timeoutMs,
    now: () => performance.now(),
  });
}

/** Refusals that an entry in UNSAFE_ALLOWED_TARGETS lifts. */
const LIFTABLE: readonly TargetRefusalCode[] = ["name_not_public", "address_not_public", "port_not_allowed"];

/** For a URL that is refused in development. */
export const UNSAFE_TARGETS_HINT =
  "For tests on this machine, see `sealpost receiver listen --help`: UNSAFE_ALLOWED_TARGETS of the service can " +
  "allow it.";

/** The error for a URL that webhooks may not go to, with a hint for tests where that helps. */
export function refusedTarget(
  { code, message }: { readonly code: TargetRefusalCode; readonly message: string },
  { environment }: Config,
): UsageError {
  const canBeLifted = environment === "development" && LIFTABLE.includes(code);
  return new UsageError(canBeLifted ? `${message} ${UNSAFE_TARGETS_HINT}` : message);
}
