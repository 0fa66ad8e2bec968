// The receiver check as in the service, for receivers on loopback.
import { createDirectConnector } from "../../src/egress/connect/direct-connector.ts";
import { createResolver } from "../../src/egress/dns/resolver.ts";
import { parseUnsafeAllowedTargets } from "../../src/egress/rules/host.ts";
import { type CheckReceiver, createReceiverCheck } from "../../src/receivers/receiver-check.ts";
import { unsafeAllowed } from "./dispatching.ts";
import type { Receiver } from "./receiver.ts";
import { patience } from "./time-limits.ts";

/** `deadlineMs`: per attempt, default 15,000. */
export function createTestCheck(
  receiver: Receiver,
  deadlineMs = patience(15_000),
  challenges = false,
): CheckReceiver {
  const now = () => performance.now();
  const unsafeAllowedTargets = parseUnsafeAllowedTargets(unsafeAllowed([receiver]));
  return createReceiverCheck({
    challenges,
    createEgress: () => ({
      connect: createDirectConnector({
        resolver: createResolver({ timeoutMs: patience(1_000), now }),
        unsafeAllowedTargets,
        connectTimeoutMs: patience(5_000),
        ca: receiver.caPem,
      }),
      unsafeAllowedTargets,
    }),
    deadlineMs,
  });
}
