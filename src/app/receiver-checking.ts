import type { Config } from "../base/config/config.ts";
import { type CheckReceiver, createReceiverCheck } from "../receivers/receiver-check.ts";
import { createEgress } from "./egress.ts";

/**
 * The receiver check, with the same egress and deadline as every delivery.
 * @throws ConfigError when the egress cannot be made from the configuration
 */
export function createReceiverChecking(config: Config): CheckReceiver {
  // Made once to no use, so that a bad configuration is refused at start and not at the first check.
  createEgress(config);
  return createReceiverCheck({
    createEgress: () => createEgress(config),
    deadlineMs: config.attemptDeadlineMs,
  });
}
