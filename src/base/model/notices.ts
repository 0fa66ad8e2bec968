import type { ErrorCode } from "./error-codes.ts";

/** Why an endpoint counts as failing. */
export const FAILING_REASONS = ["no_success", "abandoned"] as const;
export type FailingReason = (typeof FAILING_REASONS)[number];

/** What each kind of notice tells. Times are milliseconds since the epoch. */
type DetailsOfKind = {
  "endpoint.failing": {
    readonly url: string;
    readonly reason: FailingReason;
    /** The first failed attempt after the last success; null: an attempt has succeeded since. */
    readonly sinceMs: number | null;
    /** Since then. */
    readonly failedAttempts: number;
    /** Deliveries abandoned that no earlier notice told of. */
    readonly abandoned: number;
    /** Of the last attempt that failed; null where the run ended without one. */
    readonly errorCode: ErrorCode | null;
  };
  "endpoint.recovered": {
    readonly url: string;
    readonly succeededAtMs: number;
    /** Abandoned deliveries to the endpoint that can be replayed; counted up to TO_REPLAY_MAX. */
    readonly toReplay: number;
  };
  "secret.expiring": {
    /** When the secret was made that is valid beside it, and stays so. */
    readonly rotatedAtMs: number;
    readonly expiresAtMs: number;
  };
  "certificate.expiring": { readonly host: string; readonly expiresAtMs: number };
};

type KindText = {
  /** For the reference: completes "… means that". */
  readonly meaning: string;
};

/** The one list of kinds. Types, the SQL check, metrics, schemas and texts follow from it or are compared with it. */
export const NOTICE_TEXTS = {
  "endpoint.failing": {
    meaning:
      "the endpoint has not accepted a webhook for an hour and at least 10 attempts, or deliveries were abandoned",
  },
  "endpoint.recovered": { meaning: "an endpoint that was failing has accepted a webhook" },
  "secret.expiring": { meaning: "the previous signing secret is about to expire after a rotation" },
  "certificate.expiring": { meaning: "the endpoint's TLS certificate expires within 14 days" },
} as const satisfies Record<keyof DetailsOfKind, KindText>;

export type NoticeKind = keyof typeof NOTICE_TEXTS;

export const NOTICE_KINDS = Object.keys(NOTICE_TEXTS) as readonly NoticeKind[];

/** A kind with what it tells. */
export type NoticeOf<Kind extends NoticeKind> = {
  [K in Kind]: { readonly kind: K; readonly details: DetailsOfKind[K] };
}[Kind];
export type NoticeContent = NoticeOf<NoticeKind>;

/** More abandoned deliveries than this are not counted. */
export const TO_REPLAY_MAX = 10_000;

const MAIL_STATES = {
  waiting: "not sent yet",
  sending: "being sent now",
  sent: "the mail server has accepted it",
  perhaps_sent: "the connection or the process ended while it was being sent; it is not sent again",
  failed: "the mail server refused it or could not be reached, several times",
} as const;

/** Where a mail stands; the texts are for the reference. */
export type MailStatus = keyof typeof MAIL_STATES;

export const MAIL_STATUSES = Object.keys(MAIL_STATES) as readonly MailStatus[];

/** For the reference. */
export function meaningOfMailStatus(status: MailStatus): string {
  return MAIL_STATES[status];
}
