import { z } from "zod";
import { time } from "../api/fields.ts";

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
        }),
      )
      .describe("What failed, the most attempts first; at most 20."),
  })
  .meta({ id: "Activity", description: "How many attempts ended when, and where and why they failed." });

export type Activity = z.output<typeof Activity>;
