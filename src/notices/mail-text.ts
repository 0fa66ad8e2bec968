import type { NoticeContent, NoticeKind } from "../model/notices.ts";
import { noticeText, timeText } from "./notice-text.ts";
import type { Mail } from "./smtp.ts";

export type MailText = Pick<Mail, "subject" | "text">;

/** More of one kind are only counted. */
export const NOTICES_PER_MAIL_MAX = 20;

/** Where each kind can be looked into, below the API's public URL. */
const WHERE_TO_SEE: Record<NoticeKind, string> = {
  "endpoint.failing": "/v1/webhooks/deliveries",
  "endpoint.recovered": "/v1/webhooks/deliveries?status=abandoned",
  "secret.expiring": "/v1/webhooks/signing-secret",
  "certificate.expiring": "/v1/webhooks/endpoint",
};

export type ToldNotice = NoticeContent & { readonly createdAtMs: number };

/** @param notices of one kind, oldest first, at least one @param count how many there are, with those not given */
export function noticeMail(
  account: { readonly name: string; readonly recipientId: string },
  notices: readonly ToldNotice[],
  count: number,
  publicUrl: string,
): MailText {
  const newest = notices.at(-1);
  if (newest === undefined) throw new Error("a mail of no notices");
  const more = count > 1 ? `, and ${count - 1} more` : "";
  const told = notices.map((notice) => {
    const { title, message } = noticeText(notice);
    return `${title}\n${timeText(notice.createdAtMs)}\n\n${message}`;
  });
  const left = count - notices.length;
  const text = [
    `Account: ${account.name}`,
    ...told,
    ...(left > 0 ? [`${left} more of this kind: see the list of notices.`] : []),
    `What to do\n${noticeText(newest).remedy}`,
    `Where to see it\n${publicUrl}${WHERE_TO_SEE[newest.kind]}\nAll notices: ${publicUrl}/v1/webhooks/notices`,
    `--\nThis address was confirmed for the notices of ${account.name}. To end them, remove it:\n` +
      `DELETE ${publicUrl}/v1/webhooks/notices/recipients/${account.recipientId}`,
  ];
  return { subject: `${account.name}: ${noticeText(newest).title}${more}`, text: `${text.join("\n\n")}\n` };
}

/** @param link the page that confirms; @param validDays how long it does */
export function confirmationMail(accountName: string, link: string, validDays: number): MailText {
  const text = [
    `Somebody with access to the account "${accountName}" wants this address to get its notices: when the account's ` +
      "webhook endpoint fails or recovers, and when a signing secret or a certificate is about to expire.",
    `If you want them, open this page and press the button:\n${link}`,
    `The link is good for ${validDays} days. If you do not want them, do nothing: no notices are sent to an address ` +
      "that was not confirmed.",
  ];
  return {
    subject: `Confirm this address for the notices of ${accountName}`,
    text: `${text.join("\n\n")}\n`,
  };
}
