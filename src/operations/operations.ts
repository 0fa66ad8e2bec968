import type { OpenApiInfo } from "../api/openapi.ts";
import type { Operation } from "../api/operation.ts";
import { createOperationRegistry, type OperationRegistry } from "../api/operation-registry.ts";
import { operationsList } from "../api/operations-list.ts";
import { analysisOperations } from "./analyses.ts";
import { deliveryOperations } from "./deliveries.ts";
import { endpointOperations } from "./endpoint.ts";
import { problems } from "./problems.ts";
import { receiverOperations } from "./receivers.ts";
import { replayOperations } from "./replays.ts";
import type { Dependencies } from "./sealpost-operation.ts";
import { signingSecretOperations } from "./signing-secret.ts";

/** Every operation of the API, in the order of the reference. */
export function createSealpostRegistry(dependencies: Dependencies): OperationRegistry {
  const operations: readonly Operation[] = [
    ...analysisOperations(dependencies),
    ...endpointOperations(dependencies),
    ...receiverOperations(dependencies),
    ...signingSecretOperations(dependencies),
    ...deliveryOperations(dependencies),
    ...replayOperations(dependencies),
  ];
  return createOperationRegistry([...operations, operationsList(operations)], problems);
}

export const apiInfo: OpenApiInfo = {
  title: "Sealpost",
  description:
    "Tells your servers that a document analysis has finished: signed webhooks, a day of retries, a log of every " +
    "attempt, and replays. Requests carry an API key as `Authorization: Bearer …`; a key has scopes and is good " +
    "for one environment. The `type` of every error is a page that says what happened and what to do.",
  tags: [
    {
      name: "Analyses",
      description: "What was published, readable for 7 days: the fallback when webhooks fail.",
    },
    { name: "Endpoint", description: "Where the account's webhooks go, if they name no URL of their own." },
    { name: "Signing secret", description: "What signs the account's webhooks." },
    { name: "Deliveries", description: "The log of every webhook and every attempt." },
    { name: "Replays", description: "Delivering again what did not arrive, many at a time and at a pace." },
    { name: "Operations", description: "This list of operations, for programs." },
  ],
};
