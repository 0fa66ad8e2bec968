import { z } from "zod";
import { time } from "../api/fields.ts";
import { FAULT_CODES, SEVERITIES } from "./faults.ts";
import { PROBE_NAMES } from "./probes.ts";

const probeName = z.enum(PROBE_NAMES);

const Fault = z
  .object({
    code: z.enum(FAULT_CODES),
    severity: z
      .enum(SEVERITIES)
      .describe(
        "`danger`: it accepts forgeries; `fault`: webhooks get lost; `warning`: everything still arrives.",
      ),
    message: z.string().describe("What the receiver does wrong."),
    remedy: z.string().describe("How to fix it."),
    probes: z.array(probeName).describe("Those that showed it; empty if it was found in another way."),
  })
  .meta({ id: "ReceiverFault", description: "A fault of a receiver that its owner should fix." });

const Probe = z
  .object({
    name: probeName,
    sent: z.string(),
    expected: z.enum(["2xx", "not 2xx"]),
    got: z.string().describe("The status, or why there is none; both if the probe has two POSTs."),
    duration_ms: z.int(),
    verdict: z
      .enum(["right", "wrong", "not_judged"])
      .describe("`not_judged`: the response says nothing about this."),
    explanation: z.string().describe("The verdict in a sentence."),
  })
  .meta({
    id: "ReceiverProbe",
    description: "What was sent, what a correct receiver responds, and what this one did.",
  });

const Connection = z.object({
  protocol: z.literal("HTTP/1.1"),
  tls_version: z.string().nullable(),
  remote_address: z.string().nullable(),
  certificate_ends_at: time.nullable(),
  certificate_days_left: z.int().nullable(),
  slowest_answer_ms: z.int().nullable(),
});

export const ReceiverCheck = z
  .object({
    url: z.string(),
    checked_at: time,
    duration_ms: z.int(),
    verdict: z
      .enum(["right", "faulty", "dangerous"])
      .describe("`dangerous`: it accepts forgeries; `faulty`: webhooks get lost; `right`: neither."),
    faults: z.array(Fault).describe("Most severe first; empty for a correct receiver."),
    accepts_secrets: z
      .object({ current: z.boolean().nullable(), previous: z.boolean().nullable() })
      .describe(
        "Which of the account's signing secrets it accepts: during a rotation, whether it has the new one yet. Null: " +
          "there is no such secret, or its responses do not tell.",
      ),
    connection: Connection.describe("Null: there was no connection, or it did not show this."),
    probes: z.array(Probe),
  })
  .meta({ id: "ReceiverCheck", description: "What a receiver does right and wrong, as probes have shown." });

/** What a check has found. */
export type ReceiverReport = z.output<typeof ReceiverCheck>;
