import { readFileSync } from "node:fs";
import { type Config, ConfigError } from "../config/config.ts";
import { createConnector } from "../egress/connect/direct-connector.ts";
import { createConnectorThroughProxy } from "../egress/connect/proxy-connector.ts";
import { createResolver } from "../egress/dns/resolver.ts";
import type { Egress } from "../egress/egress.ts";
import type { Connect } from "../egress/post/connection.ts";
import {
  parseUnsafeAllowedTargets,
  type UnsafeAllowedTargets,
} from "../egress/rules/unsafe-allowed-targets.ts";

const DNS_TIMEOUT_MS = 3_000;

/**
 * The configured way to targets: directly, to checked addresses only, or through the egress proxy.
 * @throws ConfigError when TARGET_CA_FILE cannot be used
 */
export function createEgress(config: Config): Egress {
  const { connectTimeoutMs } = config;
  const unsafeAllowedTargets = parseUnsafeAllowedTargets((config.unsafeAllowedTargets ?? []).join(","));
  const ca = config.targetCaFile === null ? undefined : readCertificates(config.targetCaFile);
  try {
    const connect =
      config.egressProxyUrl === null
        ? createDirectConnector(config, unsafeAllowedTargets, ca)
        : createConnectorThroughProxy({ proxyUrl: new URL(config.egressProxyUrl), ca, connectTimeoutMs });
    return { connect, unsafeAllowedTargets };
  } catch (error) {
    if (ca === undefined) throw error;
    throw new ConfigError([
      `TARGET_CA_FILE (${config.targetCaFile}) cannot be used: ${(error as Error).message}`,
    ]);
  }
}

function createDirectConnector(
  config: Config,
  unsafeAllowedTargets: UnsafeAllowedTargets,
  ca: string | undefined,
): Connect {
  return createConnector({
    resolver: createResolver({
      servers: config.targetDnsServers ?? undefined,
      timeoutMs: DNS_TIMEOUT_MS,
      now: () => performance.now(),
    }),
    unsafeAllowedTargets,
    connectTimeoutMs: config.connectTimeoutMs,
    ca,
    ownAddresses: config.ownAddresses ?? [],
  });
}

function readCertificates(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError([`TARGET_CA_FILE (${path}) cannot be read (${code}).`]);
  }
}
