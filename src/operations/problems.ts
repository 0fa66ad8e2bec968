import { standardProblems } from "../api/problem-catalogue.ts";
import type { ProblemCatalogue } from "../api/problems.ts";

/** The codes of this service's own, besides those of every API on the kernel. */
const ownProblems = {
  analysis_conflict: {
    status: 409,
    title: "Analysis conflict",
    meaning: "The account has published another text, or another webhook_url, under this analysis id.",
    remedy:
      "An analysis id stands for one result: publish a new result under a new id. The same result again, byte for " +
      "byte and with the same webhook_url, is answered with the delivery that it already is.",
  },
  delivery_not_replayable: {
    status: 409,
    title: "Delivery not replayable",
    meaning: "The delivery has succeeded, or its attempts are still under way.",
    remedy:
      "Only `failed` and `abandoned` deliveries can be replayed. Read the delivery to see its status and when " +
      "its next attempt is due.",
  },
  analysis_expired: {
    status: 410,
    title: "Analysis expired",
    meaning: "The analysis was published longer ago than results are kept for.",
    remedy: "It can be neither read nor delivered any more: run the analysis again.",
  },
  target_refused: {
    status: 422,
    title: "Target refused",
    meaning: "The URL is not one that webhooks are delivered to; `errors` says which rule it breaks.",
    remedy:
      "Give a public https:// URL: no user name, no password, no fragment, a host name or address that the whole " +
      "internet can reach, port 443 or one above 1023 that is not known as another service's.",
    hasErrors: true,
  },
  invalid_analysis: {
    status: 422,
    title: "Invalid analysis",
    meaning: "The analysis is JSON, but not an analysis as it is published; `errors` says what is wrong.",
    remedy:
      "Send an object with an `id` of 1 to 200 characters out of A-Z a-z 0-9 . _ : - and the `status` succeeded or " +
      "failed, both written without escapes, nested at most 512 levels deep.",
    hasErrors: true,
  },
} as const satisfies ProblemCatalogue;

export type DomainCode = keyof typeof ownProblems;

/** Every code that this service can answer with. */
export const problems = { ...standardProblems, ...ownProblems } as const satisfies ProblemCatalogue;
