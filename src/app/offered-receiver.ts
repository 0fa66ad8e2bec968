import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import type { Config } from "../base/config/config.ts";
import { issueLocalCertificate } from "./local-certificate.ts";

/** A receiver on this machine that a `start` allows, for who wants to see a first webhook. */
export type OfferedReceiver = {
  readonly port: number;
  /** What the service is configured with, so that it goes there and trusts who has the key. */
  readonly env: Readonly<Record<"UNSAFE_ALLOWED_TARGETS" | "TARGET_CA_FILE", string>>;
};

/** Of the offered receiver; its key is beside it. */
export const certificateFileOf = ({ stateDir }: Config): string => resolve(join(stateDir, "receiver.pem"));

/**
 * Allows one private target, and `start` says so: a webhook on one's own machine should need no restart. Only in
 * development, on a database that nobody else uses, and at one port, where whoever does not have the key in the state
 * folder fails in TLS and learns nothing. Null: not here, or the operator has decided what is trusted.
 */
export async function offerReceiver(config: Config, now: () => number): Promise<OfferedReceiver | null> {
  const { environment, databaseUrl, areas, targetCaFile, egressProxyUrl, unsafeAllowedTargets } = config;
  const isOwn = environment === "development" && databaseUrl === null && areas.includes("webhooks");
  if (!isOwn || targetCaFile !== null || egressProxyUrl !== null) return null;
  const port = await choosePort(config);
  const caFile = certificateFileOf(config);
  await mkdir(config.stateDir, { recursive: true });
  await issueLocalCertificate("localhost", caFile, now, () => undefined);
  const targets = [...(unsafeAllowedTargets ?? []), `localhost:${port}`];
  return { port, env: { UNSAFE_ALLOWED_TARGETS: targets.join(","), TARGET_CA_FILE: caFile } };
}

/**
 * The one after the API's, so that it stays. Where the API takes any, or the last: a free one that no socket gets by
 * chance until the receiver has it, as ephemeral ports are above these.
 */
async function choosePort(config: Config): Promise<number> {
  if (config.port > 0 && config.port < 65_535) return config.port + 1;
  const port = randomInt(20_000, 32_768);
  const server = createServer().listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return await choosePort(config);
    throw error;
  }
  await server[Symbol.asyncDispose]();
  return port;
}
