import { operationsList } from "../api/operations-list.ts";
import { createOperationRegistry, type OperationRegistry } from "../api/registry.ts";
import { analysisOperations } from "./analyses.ts";
import { deliveryOperations } from "./deliveries.ts";
import type { Dependencies } from "./dependencies.ts";
import { endpointOperations } from "./endpoint.ts";
import { problems } from "./problems.ts";
import { receiverOperations } from "./receivers.ts";
import { replayOperations } from "./replays.ts";
import type { SealpostOperation, Transaction } from "./sealpost-operation.ts";
import { signingSecretOperations } from "./signing-secret.ts";

/** Every operation of the API, in the order of the reference. */
export function createSealpostRegistry(dependencies: Dependencies): OperationRegistry<Transaction> {
  const operations: readonly SealpostOperation[] = [
    ...analysisOperations(dependencies),
    ...endpointOperations(dependencies),
    ...receiverOperations(dependencies),
    ...signingSecretOperations(dependencies),
    ...deliveryOperations(dependencies),
    ...replayOperations(dependencies),
  ];
  return createOperationRegistry([...operations, operationsList(operations)], problems);
}
