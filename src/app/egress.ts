import { readFileSync } from "node:fs";
import { type Config, ConfigError } from "../config/config.ts";
import { createDirectConnector } from "../egress/connect/direct-connector.ts";
import { createProxyConnector } from "../egress/connect/proxy-connector.ts";
import type { Egress } from "../egress/egress.ts";
import { createTargetResolver, targetRulesOf } from "./target-rules.ts";

const DNS_TIMEOUT_MS = 3_000;

/**
 * The only way out to targets, as configured: directly to checked addresses, or through a proxy.
 * @throws ConfigError for an entry of UNSAFE_ALLOWED_TARGETS or a file of certificates that cannot be used
 */
export function createEgress(config: Config): Egress {
  const { connectTimeoutMs, egressProxyUrl, targetCaFile } = config;
  const rules = targetRulesOf(config);
  const ca = targetCaFile === null ? undefined : readCertificates(targetCaFile);
  try {
    const connect =
      egressProxyUrl === null
        ? createDirectConnector({
            ...rules,
            resolver: createTargetResolver(config, DNS_TIMEOUT_MS),
            ca,
            connectTimeoutMs,
          })
        : createProxyConnector({ proxyUrl: new URL(egressProxyUrl), ca, connectTimeoutMs });
    return { connect, unsafeAllowedTargets: rules.unsafeAllowedTargets };
  } catch (error) {
    if (ca === undefined) throw error;
    throw new ConfigError([`TARGET_CA_FILE (${targetCaFile}) cannot be used: ${(error as Error).message}`]);
  }
}

function readCertificates(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError([`TARGET_CA_FILE (${path}) cannot be read (${code}).`]);
  }
}
