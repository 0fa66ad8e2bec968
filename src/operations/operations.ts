import type { OpenApiInfo } from "../api/openapi.ts";
import type { Operation } from "../api/operation.ts";
import { createOperationRegistry, type OperationRegistry } from "../api/operation-registry.ts";
import { operationsList } from "../api/operations-list.ts";
import { accountOperations } from "./accounts.ts";
import { activityOperations } from "./activity.ts";
import { analysisOperations } from "./analyses.ts";
import { apiKeyOperations } from "./api-keys.ts";
import { auditOperations } from "./audit.ts";
import { consoleOperations } from "./console.ts";
import { deliveryOperations } from "./deliveries.ts";
import { endpointOperations } from "./endpoint.ts";
import { eventOperations } from "./events.ts";
import { noticeOperations } from "./notices.ts";
import { problems } from "./problems.ts";
import { receiverOperations } from "./receivers.ts";
import { replayOperations } from "./replays.ts";
import type { Dependencies } from "./sealpost-operation.ts";
import { searchOperations } from "./search.ts";
import { signingSecretOperations } from "./signing-secret.ts";
import { sentEvents } from "./webhook-events.ts";

/** Every operation of the API, in the order of the reference. */
export function createSealpostRegistry(dependencies: Dependencies): OperationRegistry {
  const operations: readonly Operation[] = [
    ...analysisOperations(dependencies),
    ...eventOperations(dependencies),
    ...endpointOperations(dependencies),
    ...receiverOperations(dependencies),
    ...signingSecretOperations(dependencies),
    ...deliveryOperations(dependencies),
    ...activityOperations(dependencies),
    ...replayOperations(dependencies),
    ...noticeOperations(dependencies),
    ...consoleOperations(dependencies),
    ...apiKeyOperations(dependencies),
    ...accountOperations(dependencies),
    ...searchOperations(dependencies),
  ];
  const all = [...operations, ...auditOperations(dependencies, operations)];
  return createOperationRegistry([...all, operationsList(all)], problems);
}

export const apiInfo: OpenApiInfo = {
  title: "Sealpost",
  description:
    "Notifies your servers when a document analysis has finished: signed webhooks, retries for a day, a log of " +
    "every attempt, and replays. Authenticate with an API key as `Authorization: Bearer …`; a key has scopes and " +
    "works in one environment. The `type` of every error is the URL of a page that explains it and what to do.\n\n" +
    "New here? Set an endpoint, publish an analysis or send a test event, and read the delivery log. Then:\n",
  pages: [
    {
      path: "/guide",
      title: "Receiving webhooks: verify them, answer them, find out why one did not arrive",
    },
    {
      path: "/errors",
      title: "Every error code, of this API and of attempts, with its cause and what to do",
    },
  ],
  sends: sentEvents,
  tags: [
    {
      name: "Analyses",
      description: "Published analyses, readable for 7 days: the fallback when webhooks fail.",
    },
    {
      name: "Events",
      description: "Everything that was published, to be read in order: webhooks by polling.",
    },
    { name: "Endpoint", description: "The account's default webhook URL." },
    { name: "Signing secret", description: "The secret that signs the account's webhooks." },
    { name: "Deliveries", description: "The log of every webhook and every attempt." },
    { name: "Replays", description: "Bulk redelivery of what did not arrive, at a limited rate." },
    { name: "Notices", description: "What happens to the endpoint, and who is told by mail." },
    { name: "Console", description: "Screens for people: the delivery log and replays, opened by a link." },
    { name: "API keys", description: "The account's own keys." },
    { name: "Support", description: "Across accounts, for support staff." },
    { name: "Audit", description: "Who changed what." },
    { name: "Webhooks", description: "What your endpoint receives: a signed POST for each event." },
    { name: "Operations", description: "The list of operations, for programs." },
  ],
};
