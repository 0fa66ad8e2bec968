import { z } from "zod";
import { AnsweredBy, analysisId, event, id, time } from "../api/fields.ts";
import { DELIVERY_STATES, DELIVERY_STATUSES, END_REASONS, OUTCOMES } from "../base/model/statuses.ts";
import { errorCode } from "./error-codes-api.ts";
import { ReplayMaker } from "./replays-schema.ts";

/** Shown with a delivery: replays add attempts, of KiB each. A run has at most 8, so the current one's are there. */
export const ATTEMPTS_SHOWN_MAX = 100;

export const Delivery = z
  .object({
    id: id.describe("Also the `id` of the webhook's body, the same for every attempt and replay."),
    event,
    analysis_id: analysisId,
    created_at: time,
    status: z
      .enum(DELIVERY_STATUSES)
      .describe(
        `${DELIVERY_STATUSES.map((status) => `\`${status}\`: ${DELIVERY_STATES[status].meaning}`).join("; ")}.`,
      ),
    reason: z.enum(END_REASONS).nullable().describe("Why it was abandoned; null for any other status."),
    run: z.int().describe("1 at first; every replay starts the next run."),
    replay_id: id.nullable().describe("The bulk replay that started the current run; null if none did."),
    attempts_count: z.int().describe("Attempts that have ended, in all runs."),
    next_attempt_at: time
      .nullable()
      .describe("Null while an attempt is in flight or the delivery is held, and when no more follow."),
    in_flight: z.boolean().describe("Whether an attempt is in flight."),
    held: z
      .boolean()
      .describe(
        "Whether it waits because the endpoint is paused, or was until just now; the run's clock is stopped.",
      ),
    target_url: z
      .string()
      .nullable()
      .describe("The webhook_url of the request, else the endpoint that the last attempt went to."),
    target_source: z.enum(["request", "endpoint"]).nullable(),
    last_error_code: errorCode.nullable(),
    last_status_code: z.int().nullable(),
    explanation: z.string().describe("What happened, what happens next and when, and what you can do."),
  })
  .meta({ id: "Delivery", description: "One event for one account, as in the delivery log." });

const milliseconds = z.number().nullable();

const Attempt = z
  .object({
    run: z.int(),
    number: z.int().describe("Its position in the run, from 1."),
    started_at: time,
    ended_at: time,
    duration_ms: z.int().nullable().describe("Null where it is not known: the attempt was interrupted."),
    timings: z
      .object({ dns: milliseconds, connect: milliseconds, tls: milliseconds, first_byte: milliseconds })
      .describe(
        "Milliseconds; null for steps that did not happen, such as connecting when a connection was reused.",
      ),
    target_url: z.string().nullable(),
    remote_address: z.string().nullable(),
    outcome: z.enum(OUTCOMES),
    error_code: errorCode.nullable().describe("Null where the outcome is `succeeded`."),
    error_message: z
      .string()
      .nullable()
      .describe("What the error means and what to do about it. Null if there is none."),
    status_code: z.int().nullable(),
    answered_by: AnsweredBy.nullable().describe(
      "Who answered in place of the application; null where it succeeded, where there was no response, and where it " +
        "was the application or that is not plain.",
    ),
    request_headers: z
      .record(z.string(), z.string())
      .nullable()
      .describe(
        "The headers as they were sent, except that each signature is shown as `v1=…`: it is the HMAC of `t.body`, " +
          "and is not kept. Nor are those of Standard Webhooks, and headers of your own. Null where nothing was " +
          "sent, or nobody knows when (`interrupted`). Once the analysis has " +
          "expired or was erased, without `content-length` and `traceparent`. Where the operator traces attempts, " +
          "`traceparent` is that of the publication: what was sent has the same trace and an id of its own.",
      ),
    response_headers: z.record(z.string(), z.string()).nullable(),
    response_excerpt: z.string().nullable().describe("The start of the response body, at most 1 KiB."),
  })
  .meta({ id: "Attempt", description: "One POST to the receiver." });

const DeliveryReplay = z
  .object({
    run: z.int().describe("The run that it started."),
    requested_at: time,
    replay_id: id.nullable().describe("The bulk replay; null: this delivery alone was replayed."),
    created_by: ReplayMaker.nullable().describe(
      "Null if no API key asked for it; for a key that acts for a user, if no key of that user did.",
    ),
    note: z.string().nullable().describe("Of the bulk replay; null, too, where `created_by` is not told."),
  })
  .meta({ id: "DeliveryReplay", description: "Who asked for a run of a delivery, and why." });

const said = z.string().nullable();

export const DeliveryWithAttempts = Delivery.extend({
  cause: said.describe("Of `explanation`, what happened."),
  next: said.describe("Of `explanation`, what happens next, and until when."),
  remedy: said.describe("Of `explanation`, what you can do; null: nothing."),
  replays: z
    .array(DeliveryReplay)
    .describe(
      "The replays that started its runs, the newest first, as far as they are recorded: bulk ones for as long as " +
        "the log, others for as long as the audit log, by the account's newest 10,000 changes since.",
    ),
  analysis_erased: z
    .boolean()
    .describe("Whether the text was erased, with what receivers answered, while the analysis would be kept."),
  attempts: z
    .array(Attempt)
    .describe(
      `The newest ${ATTEMPTS_SHOWN_MAX} attempts that have ended, oldest first, with those of the current run always ` +
        "among them. Older ones are left out: `attempts_count` counts them, too.",
    ),
}).meta({ id: "DeliveryWithAttempts", description: "A delivery with its newest attempts." });

export type Delivery = z.output<typeof Delivery>;
export type Attempt = z.output<typeof Attempt>;
export type DeliveryReplay = z.output<typeof DeliveryReplay>;
export type DeliveryWithAttempts = z.output<typeof DeliveryWithAttempts>;
