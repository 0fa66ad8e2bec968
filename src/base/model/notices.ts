/** Why an endpoint counts as failing. */
export const FAILING_REASONS = ["no_success", "abandoned"] as const;
export type FailingReason = (typeof FAILING_REASONS)[number];

/** The one list of kinds. The meanings are for the reference, and complete "… means that". */
export const NOTICE_MEANINGS = {
  "endpoint.failing":
    "the endpoint has not accepted a webhook for an hour and at least 10 attempts, or deliveries were abandoned",
  "endpoint.recovered": "an endpoint that was failing has accepted a webhook",
  "secret.expiring": "the previous signing secret is about to expire after a rotation",
  "certificate.expiring": "the endpoint's TLS certificate expires within 14 days",
} as const;

export type NoticeKind = keyof typeof NOTICE_MEANINGS;

export const NOTICE_KINDS = Object.keys(NOTICE_MEANINGS) as readonly NoticeKind[];

/** More abandoned deliveries than this are not counted. */
export const TO_REPLAY_MAX = 10_000;

/** Where a mail stands; the texts are for the reference. */
export const MAIL_STATES = {
  waiting: "not sent yet",
  sending: "being sent now",
  sent: "the mail server has accepted it",
  perhaps_sent: "the connection or the process ended while it was being sent; it is not sent again",
  failed: "the mail server refused it or could not be reached, several times",
} as const;

export type MailStatus = keyof typeof MAIL_STATES;

export const MAIL_STATUSES = Object.keys(MAIL_STATES) as readonly MailStatus[];
