import { randomUUID } from "node:crypto";
import type { Config } from "../config/config.ts";
import { createPoster } from "../egress/post/post.ts";
import { type CheckReceiver, createReceiverCheck } from "../receivers/receiver-check.ts";
import { createEgress } from "./egress.ts";

/**
 * The receiver check, with the target rules, connector and deadline of deliveries.
 * @throws ConfigError when TARGET_CA_FILE or the egress proxy cannot be used
 */
export function createReceiverChecking(config: Config): CheckReceiver {
  const now = () => performance.now();
  const { unsafeAllowedTargets } = createEgress(config);
  return createReceiverCheck({
    createConnect: () => createEgress(config).connect,
    createPoster: (connect) => createPoster({ connect, unsafeAllowedTargets, now }),
    deadlineMs: config.attemptDeadlineMs,
    newId: randomUUID,
    now,
  });
}
