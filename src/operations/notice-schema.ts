import { z } from "zod";
import { isoTime } from "../deliveries/time-text.ts";
import {
  FAILING_REASONS,
  MAIL_STATUSES,
  meaningOfMailStatus,
  NOTICE_KINDS,
  NOTICE_TEXTS,
  type NoticeContent,
  type NoticeKind,
} from "../model/notices.ts";
import { noticeText } from "../notices/notice-text.ts";
import type { NoticeRecipient } from "../store/notice-recipients.ts";
import type { StoredNotice } from "../store/notices.ts";
import { id, time, timeTextOrNull } from "./fields.ts";

const meanings = NOTICE_KINDS.map((kind) => `\`${kind}\`: ${NOTICE_TEXTS[kind].meaning}`).join("; ");

export const noticeKind = z.enum(NOTICE_KINDS).describe(`What happened. ${meanings}.`);

const mailStatus = z
  .enum(MAIL_STATUSES)
  .describe(MAIL_STATUSES.map((status) => `\`${status}\`: ${meaningOfMailStatus(status)}`).join("; "));

const url = z.string().describe("The endpoint at that time.");

const details = {
  "endpoint.failing": z.object({
    url,
    reason: z
      .enum(FAILING_REASONS)
      .describe(
        "`no_success`: none for an hour, and at least 10 attempts failed; `abandoned`: deliveries were.",
      ),
    since: time
      .nullable()
      .describe("The first failed attempt after the last success; null: one has succeeded since."),
    failed_attempts: z.int().describe("Since then."),
    abandoned: z.int().describe("Deliveries abandoned since the last such notice."),
    error_code: z.string().nullable().describe("Of the last attempt that failed."),
  }),
  "endpoint.recovered": z.object({
    url,
    succeeded_at: time.describe("When a webhook was accepted."),
    to_replay: z
      .int()
      .describe("Abandoned deliveries to the endpoint that can be replayed; at most 10,000 are counted."),
  }),
  "secret.expiring": z.object({
    rotated_at: time,
    expires_at: time.describe("From then on only the new secret signs."),
  }),
  "certificate.expiring": z.object({
    host: z.string().describe("Of the endpoint; with its port unless that is 443."),
    expires_at: time,
  }),
} as const satisfies Record<NoticeKind, z.ZodObject>;

const common = {
  id,
  created_at: time,
  title: z.string().describe("For people, as in the mail's subject."),
  message: z.string().describe("What happened, for people."),
  remedy: z.string().describe("What to do about it, for people."),
  mails: z
    .array(
      z.object({
        address: z.string(),
        status: mailStatus,
        ended_at: time.nullable().describe("When it was sent or given up; null: neither yet."),
      }),
    )
    .describe("Who was told by mail. Empty: nobody, or not yet."),
};

const notices = NOTICE_KINDS.map((kind) =>
  z.object({ ...common, kind: z.literal(kind), details: details[kind] }),
) as unknown as readonly [NoticeShape, ...NoticeShape[]];

type NoticeShape = {
  [Kind in NoticeKind]: z.ZodObject<
    typeof common & { kind: z.ZodLiteral<Kind>; details: (typeof details)[Kind] }
  >;
}[NoticeKind];

export const Notice = z
  .discriminatedUnion("kind", notices)
  .meta({ id: "Notice", description: "Something that happened to the account's endpoint." });

export function noticeBody(notice: StoredNotice): z.output<typeof Notice> {
  const mails = notice.mails.map(({ address, status, endedAtMs }) => ({
    address,
    status,
    ended_at: timeTextOrNull(endedAtMs),
  }));
  return {
    id: notice.id,
    created_at: isoTime(notice.createdAtMs),
    ...noticeText(notice),
    ...contentBody(notice),
    mails,
  } as z.output<typeof Notice>;
}

function contentBody(notice: NoticeContent) {
  switch (notice.kind) {
    case "endpoint.failing": {
      const { url, reason, sinceMs, failedAttempts, abandoned, errorCode } = notice.details;
      const since = timeTextOrNull(sinceMs);
      const counts = { failed_attempts: failedAttempts, abandoned };
      return { kind: notice.kind, details: { url, reason, since, ...counts, error_code: errorCode } };
    }
    case "endpoint.recovered": {
      const { url, succeededAtMs, toReplay } = notice.details;
      return {
        kind: notice.kind,
        details: { url, succeeded_at: isoTime(succeededAtMs), to_replay: toReplay },
      };
    }
    case "secret.expiring": {
      const { rotatedAtMs, expiresAtMs } = notice.details;
      return {
        kind: notice.kind,
        details: { rotated_at: isoTime(rotatedAtMs), expires_at: isoTime(expiresAtMs) },
      };
    }
    case "certificate.expiring": {
      const { host, expiresAtMs } = notice.details;
      return { kind: notice.kind, details: { host, expires_at: isoTime(expiresAtMs) } };
    }
    default:
      throw new Error(`unknown kind of notice: ${JSON.stringify(notice satisfies never)}`);
  }
}

export const Recipient = z
  .object({
    id,
    address: z.string(),
    status: z
      .enum(["unconfirmed", "confirmed"])
      .describe(
        "Notices are sent to confirmed addresses only. One that stays unconfirmed for 7 days is removed.",
      ),
    confirmation_mail: mailStatus.nullable().meta({
      description: "The last mail that asked to confirm; null: forgotten since.",
    }),
    created_at: time,
    confirmed_at: time.nullable(),
  })
  .meta({ id: "NoticeRecipient", description: "An address that gets the account's notices by mail." });

export function recipientBody(recipient: NoticeRecipient): z.output<typeof Recipient> {
  const { confirmedAt } = recipient;
  return {
    id: recipient.id,
    address: recipient.address,
    status: confirmedAt === null ? "unconfirmed" : "confirmed",
    confirmation_mail: recipient.confirmationMail,
    created_at: recipient.createdAt.toISOString(),
    confirmed_at: confirmedAt?.toISOString() ?? null,
  };
}
