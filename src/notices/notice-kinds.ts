import { z } from "zod";
import { id, time } from "../api/fields.ts";
import { explainErrorCode } from "../base/model/error-codes.ts";
import {
  FAILING_REASONS,
  type FailingReason,
  MAIL_STATES,
  MAIL_STATUSES,
  NOTICE_KINDS,
  type NoticeKind,
  TO_REPLAY_MAX,
} from "../base/model/notices.ts";

/** What a person is told: in the API, in mails. */
export type NoticeText = {
  /** A few words, for a subject. */
  readonly title: string;
  /** What happened, and since when. One or two sentences. */
  readonly message: string;
  /** What to do. */
  readonly remedy: string;
};

type Kind<Details extends z.ZodObject> = {
  /** What is stored of it, and answered. */
  readonly details: Details;
  /** Where it can be looked into, below the API's public URL. */
  readonly path: string;
  readonly text: (details: z.output<Details>) => NoticeText;
};

const kind = <Details extends z.ZodObject>(one: Kind<Details>) => one;

const url = z.string().describe("The endpoint at that time.");

/** Each kind of notice, whole; what it means in a word is in base/model/notices.ts. */
export const KINDS = {
  "endpoint.failing": kind({
    details: z.object({
      url,
      reason: z
        .enum(FAILING_REASONS)
        .describe(
          "`no_success`: none for an hour, and at least 10 failed attempts; `abandoned`: deliveries were abandoned.",
        ),
      since: time
        .nullable()
        .describe("The first failed attempt after the last success; null: one has succeeded since."),
      failed_attempts: z.int().describe("Since then."),
      abandoned: z.int().describe("Deliveries abandoned since the last such notice."),
      error_code: z.string().nullable().describe("Of the last attempt that failed."),
    }),
    path: "/v1/webhooks/deliveries",
    text: ({ url, reason, since, failed_attempts, abandoned, error_code }) => {
      const failed = counted(failed_attempts, "attempt has", "attempts have");
      const deliveries = counted(abandoned, "delivery was", "deliveries were");
      const said = [
        since !== null && `No webhook has been accepted since ${momentInWords(since)}; ${failed} failed.`,
        abandoned > 0 && `${deliveries} abandoned and will not be tried again unless replayed.`,
        error_code !== null && `The last error was ${error_code}: ${explainErrorCode(error_code).message}`,
      ];
      return {
        title: FAILING_TITLES[reason](hostOf(url)),
        message: said.filter((sentence) => sentence !== false).join(" "),
        remedy:
          "Check the receiver; the delivery log shows each attempt and its answer. Failed deliveries are retried " +
          "automatically; abandoned ones have to be replayed once the receiver works: POST /v1/webhooks/replays.",
      };
    },
  }),
  "endpoint.recovered": kind({
    details: z.object({
      url,
      succeeded_at: time.describe("When a webhook was accepted."),
      to_replay: z
        .int()
        .describe("Abandoned deliveries to the endpoint that can be replayed; at most 10,000 are counted."),
    }),
    path: "/v1/webhooks/deliveries?status=abandoned",
    text: ({ url, succeeded_at, to_replay }) => {
      const count = to_replay.toLocaleString("en") + (to_replay >= TO_REPLAY_MAX ? " or more" : "");
      const waiting =
        to_replay === 1 ? "1 abandoned delivery is waiting" : `${count} abandoned deliveries are waiting`;
      return {
        title: `${hostOf(url)} accepts webhooks again`,
        message:
          `A webhook was accepted on ${momentInWords(succeeded_at)}. ` +
          (to_replay === 0 ? "Nothing is waiting to be replayed." : `${waiting} to be replayed.`),
        remedy:
          to_replay === 0
            ? "Nothing."
            : 'Replay them: POST /v1/webhooks/replays with the filter {"status": "abandoned"}.',
      };
    },
  }),
  "secret.expiring": kind({
    details: z.object({
      rotated_at: time,
      expires_at: time.describe("From then on only the new secret signs."),
    }),
    path: "/v1/webhooks/signing-secret",
    text: ({ rotated_at, expires_at }) => ({
      title: "The previous signing secret expires",
      message:
        `The signing secret was rotated on ${momentInWords(rotated_at)}. The previous one stops signing on ` +
        `${momentInWords(expires_at)}; from then on, webhooks carry only the new signature.`,
      remedy:
        "Make sure that your receiver verifies with the new secret. To find out, check the " +
        "receiver: POST /v1/webhooks/endpoint/check.",
    }),
  }),
  "certificate.expiring": kind({
    details: z.object({
      host: z.string().describe("Of the endpoint; with its port unless that is 443."),
      expires_at: time,
    }),
    path: "/v1/webhooks/endpoint",
    text: ({ host, expires_at }) => ({
      title: `The certificate of ${host} expires`,
      message: `The TLS certificate of ${host} expires on ${momentInWords(expires_at)}.`,
      remedy: "Renew it before then: webhooks are not delivered to a server whose certificate has expired.",
    }),
  }),
} as const satisfies Readonly<Record<NoticeKind, unknown>>;

/** A kind with what it tells. */
export type NoticeContent = {
  [One in NoticeKind]: { readonly kind: One; readonly details: z.output<(typeof KINDS)[One]["details"]> };
}[NoticeKind];

export function noticeText({ kind, details }: NoticeContent): NoticeText {
  // Of the same kind, which no type says of two of a union.
  return KINDS[kind].text(details as never);
}

const FAILING_TITLES: Record<FailingReason, (host: string) => string> = {
  no_success: (host) => `${host} does not accept webhooks`,
  abandoned: (host) => `Webhooks to ${host} were abandoned`,
};

function counted(count: number, one: string, many: string): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** Only the host: customers put tokens into paths, and a mail goes further than the API. */
function hostOf(url: string): string {
  return new URL(url).host;
}

/** `22 November 2026, 10:43 UTC` @param time as the API writes it */
export function momentInWords(time: string): string {
  const date = new Date(time);
  const day = date.toLocaleDateString("en-GB", { dateStyle: "long", timeZone: "UTC" });
  return `${day}, ${date.toISOString().slice(11, 16)} UTC`;
}

const mailStatus = z
  .enum(MAIL_STATUSES)
  .describe(MAIL_STATUSES.map((status) => `\`${status}\`: ${MAIL_STATES[status]}`).join("; "));

const NoticeMail = z
  .object({
    address: z.string(),
    status: mailStatus,
    ended_at: time.nullable().describe("When it was sent or given up; null: neither yet."),
  })
  .meta({ id: "NoticeMail", description: "An email about a notice." });

const common = {
  id,
  created_at: time,
  title: z.string().describe("For people, as in the mail's subject."),
  message: z.string().describe("What happened, for people."),
  remedy: z.string().describe("What to do about it, for people."),
  mails: z.array(NoticeMail).describe("Who got an email about it. Empty: nobody, or not yet."),
};

/** `EndpointFailingNotice`: generators of clients stumble over unions of objects that have no names. */
const nameOf = (kind: NoticeKind) =>
  `${kind.replaceAll(/(?:^|\.)[a-z]/g, (start) => start.replace(".", "").toUpperCase())}Notice`;

const notices = NOTICE_KINDS.map((kind) =>
  z.object({ ...common, kind: z.literal(kind), details: KINDS[kind].details }).meta({ id: nameOf(kind) }),
) as unknown as readonly [NoticeShape, ...NoticeShape[]];

type NoticeShape = {
  [Kind in NoticeKind]: z.ZodObject<
    typeof common & { kind: z.ZodLiteral<Kind>; details: (typeof KINDS)[Kind]["details"] }
  >;
}[NoticeKind];

export const Notice = z
  .discriminatedUnion("kind", notices)
  .meta({ id: "Notice", description: "Something that happened to the account's endpoint." });

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
      description: "The last mail that asked to confirm; null: no longer known.",
    }),
    created_at: time,
    confirmed_at: time.nullable(),
  })
  .meta({ id: "NoticeRecipient", description: "An address that gets the account's notices by mail." });

export type Recipient = z.output<typeof Recipient>;

/** As it is answered, but for its words. */
export type StoredNotice = NoticeContent & Pick<z.output<typeof Notice>, "id" | "created_at" | "mails">;
