import { z } from "zod";
import { AnsweredBy, time } from "../api/fields.ts";

/** A day of five minutes. */
export const ITEMS_MAX = 288;

const attempts = z.int().min(0);

export const Activity = z
  .object({
    counted_to: time.describe(
      "Attempts that ended before this time, about a minute ago, are counted, later ones not yet. A bucket missing " +
        "from `items` was not counted; it need not be empty.",
    ),
    items: z
      .array(
        z.object({ at: time.describe("When the bucket begins."), succeeded: attempts, failed: attempts }),
      )
      .max(ITEMS_MAX)
      .describe(
        "One bucket after the other, oldest first, including those without attempts, up to `counted_to`.",
      ),
    top: z
      .array(
        z.object({
          target_host: z
            .string()
            .describe(
              "`(other)`: not among the 50 hosts that are counted separately at a time, or not known.",
            ),
          error_code: z.string().describe("As in the delivery log."),
          attempts,
          last_at: time.describe("When the last of them ended."),
          last_success_at: time.nullable().describe("Of the host. Null: none in the range."),
          failing_since: time
            .nullable()
            .describe("The host's first failure after its last success. Null: it has not failed since."),
          answered_by: AnsweredBy.nullable().describe(
            "Who responded to the last of them in place of the application, where it still fails. Null: the " +
              "application, nobody, or it is not plain.",
          ),
        }),
      )
      .describe("What failed, the most attempts first; at most 20."),
  })
  .meta({ id: "Activity", description: "How many attempts ended when, and where and why they failed." });

/** Deliveries whose responses are timed. */
export const TIMED_MAX = 200;

const milliseconds = z.int().min(0);

export const EndpointHealth = z
  .object({
    failing_since: time
      .nullable()
      .describe(
        "The first failed attempt of the last 24 hours after the last success; null: it does not fail.",
      ),
    error_code: z.string().nullable().describe("Of the last failed attempt; null: it does not fail."),
    last_success_at: time.nullable().describe("Within 24 hours; null: there was none."),
    succeeded: attempts.describe("Attempts of the last 24 hours."),
    failed: attempts.describe("The same."),
    counted_to: time.describe("Attempts that ended before this time, about a minute ago, are counted."),
    response_time_ms: z
      .object({ p50: milliseconds, p95: milliseconds })
      .nullable()
      .describe(
        `Of the last attempts of the account's newest ${TIMED_MAX} deliveries, those that got a response from the ` +
          "endpoint's host; null: none did.",
      ),
  })
  .meta({ id: "EndpointHealth", description: "How the endpoint's host has responded lately." });

export type EndpointHealth = z.output<typeof EndpointHealth>;
export type Activity = z.output<typeof Activity>;
