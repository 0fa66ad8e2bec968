import { z } from "zod";
import { isoTime } from "../deliveries/time-text.ts";
import { FAULT_CODES, SEVERITIES } from "../receivers/fault.ts";
import { VERDICTS } from "../receivers/probe-verdict.ts";
import { PROBE_NAMES } from "../receivers/probes.ts";
import { CHECK_VERDICTS, type ReceiverReport } from "../receivers/receiver-check.ts";
import { time, timeTextOrNull } from "./fields.ts";

const probeName = z.enum(PROBE_NAMES);

const Fault = z
  .object({
    code: z.enum(FAULT_CODES),
    severity: z
      .enum(SEVERITIES)
      .describe("`danger`: it accepts forgeries; `fault`: webhooks get lost; `warning`: all arrives today."),
    message: z.string().describe("What the receiver does, in plain words."),
    remedy: z.string().describe("What to do about it."),
    probes: z.array(probeName).describe("Those that showed it; none when it was seen otherwise."),
  })
  .meta({ id: "ReceiverFault", description: "Something about a receiver that its owner should mend." });

const Probe = z
  .object({
    name: probeName,
    sent: z.string(),
    expected: z.enum(["2xx", "not 2xx"]),
    got: z.string().describe("The status, or why there is none; of a probe of two POSTs both."),
    duration_ms: z.int(),
    verdict: z.enum(VERDICTS).describe("`not_judged`: what came back says nothing about this."),
    explanation: z.string().describe("The verdict in plain words."),
  })
  .meta({
    id: "ReceiverProbe",
    description: "What was sent, what a right receiver answers, and what this one did.",
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
      .enum(CHECK_VERDICTS)
      .describe("`dangerous`: it accepts forgeries; `faulty`: webhooks get lost; `right`: neither."),
    faults: z.array(Fault).describe("The gravest first; none for a right receiver."),
    connection: Connection.describe("Null: no connection came about, or it did not tell."),
    probes: z.array(Probe),
  })
  .meta({ id: "ReceiverCheck", description: "What a receiver does right and wrong, found out by probes." });

/** @param atMs when it was checked, milliseconds since the epoch */
export function receiverCheckBody(
  url: string,
  atMs: number,
  { verdict, faults, probes, connection, durationMs }: ReceiverReport,
): z.output<typeof ReceiverCheck> {
  return {
    url,
    checked_at: isoTime(atMs),
    duration_ms: durationMs,
    verdict,
    faults: faults.map((fault) => ({ ...fault, probes: [...fault.probes] })),
    connection: {
      protocol: "HTTP/1.1",
      tls_version: connection.tlsVersion,
      remote_address: connection.remoteAddress,
      certificate_ends_at: timeTextOrNull(connection.certificateEndsAt?.getTime() ?? null),
      certificate_days_left: connection.certificateDaysLeft,
      slowest_answer_ms: connection.slowestAnswerMs,
    },
    probes: probes.map(({ durationMs: duration_ms, ...probe }) => ({ ...probe, duration_ms })),
  };
}
