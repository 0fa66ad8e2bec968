import { apiKeyOperations } from "../accounts/api-keys-api.ts";
import { auditOperations } from "../accounts/audit-api.ts";
import { consoleOperations } from "../accounts/console-sessions-api.ts";
import { usageOperations } from "../accounts/usage-api.ts";
import { userOperations } from "../accounts/users-api.ts";
import type { ApiPart } from "../api/operations.ts";
import { problems } from "../api/problems.ts";
import { analysisOperations } from "../delivery/analyses-api.ts";
import { endpointOperations } from "../delivery/endpoint-api.ts";
import { signingSecretOperations } from "../delivery/signing-secrets-api.ts";
import { sentEvents } from "../delivery/webhook-events.ts";
import { eventOperations } from "../feed/events-api.ts";
import type { OpenApiInfo } from "../http/openapi.ts";
import { createOperationRegistry, type OperationRegistry } from "../http/operation-registry.ts";
import { operationsList } from "../http/operations-list.ts";
import { accountOperations } from "../log/accounts-api.ts";
import { activityOperations } from "../log/activity-api.ts";
import { deliveryOperations } from "../log/deliveries-api.ts";
import { replayOperations } from "../log/replays-api.ts";
import { noticeOperations } from "../notices/notices-api.ts";
import { receiverOperations } from "../receivers/receivers-api.ts";

/** Of the webhooks. */
const groups = [
  analysisOperations,
  eventOperations,
  endpointOperations,
  receiverOperations,
  signingSecretOperations,
  deliveryOperations,
  activityOperations,
  replayOperations,
  noticeOperations,
  consoleOperations,
  accountOperations,
] as const;

type MakeOperations = (typeof groups)[number] | typeof apiKeyOperations;

/** What the operations depend on, all together: whoever may call any of these needs what each of them needs. */
export type Dependencies = MakeOperations extends (dependencies: infer All) => unknown ? All : never;

/** Every operation of the API: those of the areas, and those of every installation, whatever areas it has. */
export function createSealpostRegistry(
  dependencies: Dependencies,
  parts: readonly ApiPart[],
): OperationRegistry {
  const operations = [
    ...parts.flatMap((part) => part.operations),
    ...apiKeyOperations(dependencies),
    ...userOperations(dependencies.pool),
    ...usageOperations(dependencies.pool, parts),
  ];
  const all = [...operations, ...auditOperations(dependencies.pool, operations)];
  const codes = Object.assign({}, problems, ...parts.map((part) => part.problems));
  return createOperationRegistry([...all, operationsList(all)], codes);
}

/** Analyses, their webhooks, and the screens that show them. */
export function webhooksPart(dependencies: Dependencies): ApiPart {
  return {
    about:
      "Notifies your servers when a document analysis has finished: signed webhooks, retries for a day, a log of " +
      "every attempt, and replays. Set an endpoint, publish an analysis or send a test event, and read the delivery " +
      "log.",
    operations: groups.flatMap((operationsOf) => operationsOf(dependencies)),
    problems: {},
    pages: [
      {
        path: "/guide",
        title: "Receiving webhooks: verify them, answer them, find out why one did not arrive",
      },
    ],
    sends: sentEvents,
    tags: tagsOf({
      Analyses: "Published analyses, readable for 7 days: the fallback when webhooks fail.",
      Events: "Everything that was published, to be read in order: webhooks by polling.",
      Endpoint: "The account's default webhook URL.",
      "Signing secret": "The secret that signs the account's webhooks.",
      Deliveries: "The log of every webhook and every attempt.",
      Replays: "Bulk redelivery of what did not arrive, at a limited rate.",
      Notices: "What happens to the endpoint, and who gets mail about it.",
      Console: "Screens for people: the delivery log and replays, opened by a link.",
      Webhooks: "What your endpoint receives: a signed POST for each event.",
    }),
  };
}

function tagsOf(descriptions: Readonly<Record<string, string>>): OpenApiInfo["tags"] {
  return Object.entries(descriptions).map(([name, description]) => ({ name, description }));
}

/** How the reference introduces the API. */
export function createApiInfo(parts: readonly ApiPart[]): OpenApiInfo {
  const authentication =
    "Authenticate with an API key as `Authorization: Bearer …`; a key has scopes and works in one environment. The " +
    "`type` of every error is the URL of a page that explains it and what to do. To begin with:\n";
  return {
    title: "Sealpost",
    description: [...parts.map(({ about }) => about), authentication].join("\n\n"),
    pages: [
      ...parts.flatMap(({ pages }) => pages),
      {
        path: "/errors",
        title: "Every error code, of this API and of attempts, with its cause and what to do",
      },
    ],
    sends: parts.flatMap(({ sends }) => sends),
    tags: [
      ...parts.flatMap(({ tags }) => tags),
      ...tagsOf({
        "API keys": "The account's own keys, and those of its users.",
        Users: "The people of the account, for whom keys can act.",
        Usage: "What the account stores, and how much it may store.",
        Support: "Across accounts, for support staff.",
        Audit: "Who changed what.",
        Operations: "The list of operations, for programs.",
      }),
    ],
  };
}
