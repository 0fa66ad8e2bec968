import { operationsList } from "../api/operations-list.ts";
import { createRegistry, type Registry } from "../api/registry.ts";
import { analysisOperations } from "./analyses.ts";
import { deliveryOperations } from "./deliveries.ts";
import type { Dependencies } from "./dependencies.ts";
import { endpointOperations } from "./endpoint.ts";
import type { SealpostOperation, Transaction } from "./kit.ts";
import { problems } from "./problems.ts";
import { receiverOperations } from "./receivers.ts";
import { replayOperations } from "./replays.ts";
import { signingSecretOperations } from "./signing-secret.ts";

/** Every operation of the API, in the order of the reference. */
export function createSealpostRegistry(dependencies: Dependencies): Registry<Transaction> {
  const operations: readonly SealpostOperation[] = [
    ...analysisOperations(dependencies),
    ...endpointOperations(dependencies),
    ...receiverOperations(dependencies),
    ...signingSecretOperations(dependencies),
    ...deliveryOperations(dependencies),
    ...replayOperations(dependencies),
  ];
  return createRegistry([...operations, operationsList(operations)], problems);
}
