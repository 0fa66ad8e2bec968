// The receiver check as the service makes it, for receivers on loopback.
import { randomUUID } from "node:crypto";
import { createConnector } from "../../src/egress/connect/direct-connector.ts";
import { createResolver } from "../../src/egress/dns/resolver.ts";
import { createPoster } from "../../src/egress/post/post.ts";
import { parseUnsafeAllowedTargets } from "../../src/egress/rules/unsafe-allowed-targets.ts";
import { type CheckReceiver, createReceiverCheck } from "../../src/receivers/receiver-check.ts";
import { unsafeAllowed } from "./dispatching.ts";
import type { Receiver } from "./receiver.ts";
import { patience } from "./time-limits.ts";

/** `deadlineMs`: of an attempt; 15,000 unless given. */
export function createTestCheck(receiver: Receiver, deadlineMs = patience(15_000)): CheckReceiver {
  const now = () => performance.now();
  const unsafeAllowedTargets = parseUnsafeAllowedTargets(unsafeAllowed([receiver]).join(","));
  return createReceiverCheck({
    createConnect: () =>
      createConnector({
        resolver: createResolver({ timeoutMs: patience(1_000), now }),
        unsafeAllowedTargets,
        connectTimeoutMs: patience(5_000),
        ca: receiver.caPem,
      }),
    createPoster: (observed) => createPoster({ connect: observed, unsafeAllowedTargets, now }),
    deadlineMs,
    newId: randomUUID,
    now,
  });
}
