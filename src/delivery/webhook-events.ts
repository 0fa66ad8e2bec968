import { z } from "zod";
import { analysisId, id, time } from "../api/fields.ts";
import { EVENTS, type EventName, STATUS_OF_EVENT } from "../base/model/events.ts";
import type { SentHeader, SentRequest } from "../http/openapi-schemas.ts";
import { SIGNATURE_HEADER } from "../signing/index.ts";

const headers: readonly SentHeader[] = [
  {
    name: SIGNATURE_HEADER,
    description:
      "`t`: when the attempt was signed, in seconds since 1970. `v1`: HMAC-SHA256 over `<t>.<raw body>` in hex, with " +
      "the whole signing secret as the key; two of them while a rotated secret still signs. Verify it over the bytes " +
      "as they arrive, and refuse a `t` that is 300 seconds or more from now.",
    isAlwaysSent: true,
    pattern: /^t=[0-9]+(,v1=[0-9a-f]{64}){1,2}$/,
    example: `t=1795154794,v1=${"8b20d6e9a8163ad0".repeat(4)}`,
  },
  {
    name: "webhook-id",
    description:
      "Where the endpoint has the scheme `standard`: what is signed in `webhook-signature` begins with it. The " +
      "delivery's id, or a challenge's own.",
    isAlwaysSent: false,
    pattern: /^[0-9a-f-]{36}$/,
    example: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11",
  },
  {
    name: "webhook-timestamp",
    description: "With `standard`: when the attempt was signed, in seconds since 1970.",
    isAlwaysSent: false,
    pattern: /^[0-9]+$/,
    example: "1795154794",
  },
  {
    name: "webhook-signature",
    description:
      "With `standard`: `v1,` and the HMAC-SHA256 over `<webhook-id>.<webhook-timestamp>.<raw body>` in base64, as " +
      "Standard Webhooks has it: the key is what the base64 after `whsec_` stands for. Two of them, with a space " +
      "between, while a rotated secret still signs.",
    isAlwaysSent: false,
    pattern: /^v1,[A-Za-z0-9+/]{43}=( v1,[A-Za-z0-9+/]{43}=)?$/,
    example: "v1,iyDW6agWOtCLINbpqBY60Isg1umoFjrQiyDW6agWOtA=",
  },
  {
    name: "traceparent",
    description: "The trace in which the analysis was published (W3C Trace Context), if it was in one.",
    isAlwaysSent: false,
    pattern: /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}/,
    example: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  },
];

const NAMES: Readonly<Record<EventName, { readonly component: string; readonly summary: string }>> = {
  "analysis.succeeded": { component: "AnalysisSucceededEvent", summary: "An analysis has succeeded" },
  "analysis.failed": { component: "AnalysisFailedEvent", summary: "An analysis has failed" },
};

/** What receivers are sent: a webhook for each event. */
export const sentEvents: readonly SentRequest[] = EVENTS.map((event) => {
  const { component, summary } = NAMES[event];
  const status = STATUS_OF_EVENT[event];
  return {
    event,
    tag: "Webhooks",
    summary,
    description:
      "Sent to the `webhook_url` of the publication, else to the account's endpoint. At least once, in any order: " +
      "the same `id` can come again. Redirects are not followed, and an answer is due within 15 seconds. Before the " +
      "first, a receiver may be sent a challenge instead, which the guide for receivers describes.",
    headers,
    body: z
      .object({
        id: id.describe("The delivery's id, the same for every attempt and replay: handle each id once."),
        event: z.enum([event]),
        created_at: time.describe("When the analysis was published."),
        data: z
          .looseObject({ id: analysisId, status: z.enum([status]), example: z.boolean().optional() })
          .describe("The analysis as published. `example` is true in test events."),
      })
      .meta({ id: component, description: `The body of the webhook \`${event}\`.` }),
    example: {
      id: "0199a1f0-7d2c-7c3a-9b1e-3f6f2f6f0a11",
      event,
      created_at: "2027-01-15T08:00:00.000Z",
      data: { id: "an_1", status },
    },
    responses: {
      "2XX": "The event is stored: the delivery has succeeded.",
      "3XX": "A failed attempt: redirects are not followed.",
      "4XX": "A failed attempt, retried like any other. Answer 400 to a signature that does not match.",
      "5XX": "A failed attempt, retried: up to 8 attempts over about 24 hours.",
    },
  };
});
