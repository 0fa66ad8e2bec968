import { z } from "zod";
import { time } from "../api/fields.ts";

/** Counting so many takes some 100 ms. */
export const HELD_COUNTED_MAX = 1_000_000;

export const PAYLOADS = ["full", "reference"] as const;
export const SIGNATURE_SCHEMES = ["extract", "standard"] as const;

export const Endpoint = z
  .object({
    url: z.string().describe("The URL, normalized."),
    created_at: time,
    updated_at: time,
    paused_at: time.nullable().describe("Since when it has been paused; null while it is not."),
    held: z
      .int()
      .nullable()
      .describe(
        "Deliveries that are held: while it is paused, and afterwards until they are released. Exact up to " +
          `${HELD_COUNTED_MAX.toLocaleString("en")}. Null for keys that act for a user: it covers the account.`,
      ),
    payload: z
      .enum(PAYLOADS)
      .describe(
        "What webhooks have as `data`: the analysis, or `{id, status, url}`, which leads to it. Of analyses that are " +
          "published from now on without a `webhook_url`; replays send the same bytes.",
      ),
    forget_after_success: z
      .boolean()
      .describe(
        "Whether analyses that are published from now on without a `webhook_url` are erased some time after their " +
          "delivery.",
      ),
    signature_schemes: z
      .array(z.enum(SIGNATURE_SCHEMES))
      .describe(
        "How the account's webhooks are signed: `extract` is always there; with `standard` they have the headers of " +
          "Standard Webhooks, too.",
      ),
    headers: z
      .array(z.object({ name: z.string(), value: z.string().nullable(), secret: z.boolean() }))
      .describe("Headers of your own that webhooks to the endpoint have. `value` is null for secret ones."),
    certificate_expires_at: time
      .nullable()
      .describe(
        "Expiry of the certificate that the receiver last presented to a delivery; null: none was seen.",
      ),
    certificate_first_seen_at: time
      .nullable()
      .describe(
        "When a delivery first saw that certificate there: a later renewal has not been seen yet. Null: none was seen.",
      ),
  })
  .meta({ id: "Endpoint", description: "The account's default webhook URL." });

export type Endpoint = z.output<typeof Endpoint>;
