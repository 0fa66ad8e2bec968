// The receiver check as the service makes it, for receivers on loopback.
import { randomUUID } from "node:crypto";
import { createPoster } from "../../src/dispatch/post.ts";
import { type CheckReceiver, createReceiverCheck } from "../../src/receivers/receiver-check.ts";
import { createConnector } from "../../src/target/connector.ts";
import { createResolver } from "../../src/target/resolver.ts";
import { parseUnsafeAllowedTargets } from "../../src/target/unsafe-allowed-targets.ts";
import { unsafeAllowed } from "./dispatching.ts";
import type { Receiver } from "./receiver.ts";

/** `deadlineMs`: of an attempt; 15,000 unless given. */
export function createTestCheck(receiver: Receiver, deadlineMs = 15_000): CheckReceiver {
  const now = () => performance.now();
  const unsafeAllowedTargets = parseUnsafeAllowedTargets(unsafeAllowed([receiver]).join(","));
  return createReceiverCheck({
    createConnect: () =>
      createConnector({
        resolver: createResolver({ timeoutMs: 1_000, now }),
        unsafeAllowedTargets,
        connectTimeoutMs: 5_000,
        ca: receiver.caPem,
      }),
    createPoster: (observed) => createPoster({ connect: observed, unsafeAllowedTargets, now }),
    deadlineMs,
    newId: randomUUID,
    now,
  });
}
