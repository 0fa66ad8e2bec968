import type { Pool } from "pg";
import { DAY_MS } from "../base/model/time.ts";
import { digestSecret, newSecret } from "../http/api-keys.ts";
import type { ConfirmationPage, Confirmations } from "../http/public-routes.ts";
import { KINDS, momentInWords, noticeText } from "./notice-kinds.ts";
import {
  type ClaimedMail,
  claimMail,
  type MailEnding,
  settleMail,
  storeConfirmationToken,
  type ToldNotice,
} from "./notice-mails-sql.ts";
import { type Confirmation, confirmRecipient, findConfirmation } from "./notice-recipients-sql.ts";
import type { Mail, SendMail, SendResult } from "./smtp.ts";

export type MailText = Pick<Mail, "subject" | "text">;

/** More of one kind are only counted. */
const NOTICES_PER_MAIL_MAX = 20;

/** @param notices of one kind, oldest first; null: none of them is left */
function noticeMail(mail: ClaimedMail, notices: readonly ToldNotice[], publicUrl: string): MailText | null {
  const newest = notices.at(-1);
  if (newest === undefined) return null;
  const name = plainName(mail.accountName);
  const count = mail.noticesCount;
  const more = count > 1 ? `, and ${count - 1} more` : "";
  const told = notices.map((notice) => {
    const { title, message } = noticeText(notice);
    return `${title}\n${momentInWords(notice.created_at)}\n\n${message}`;
  });
  const left = count - notices.length;
  const text = [
    `Account: ${name}`,
    ...told,
    ...(left > 0 ? [`${left} more of this kind: see the list of notices.`] : []),
    `What to do\n${noticeText(newest).remedy}`,
    `Where to see it\n${publicUrl}${KINDS[newest.kind].path}\nAll notices: ${publicUrl}/v1/webhooks/notices`,
    `--\nThis address was confirmed for the notices of ${name}. To stop them, remove it:\n` +
      `DELETE ${publicUrl}/v1/webhooks/notices/recipients/${mail.recipientId}`,
  ];
  return { subject: `${name}: ${noticeText(newest).title}${more}`, text: `${text.join("\n\n")}\n` };
}

/** @param link the page that confirms */
function confirmationMail(accountName: string, link: string): MailText {
  const text = [
    `Somebody with access to the account "${accountName}" wants this address to get its notices: when the account's ` +
      "webhook endpoint fails or recovers, and when a signing secret or a certificate is about to expire.",
    `If you want them, open this page and press the button:\n${link}`,
    `The link is good for ${TOKEN_VALID_DAYS} days. If you do not want them, do nothing: no notices are sent to ` +
      "an address that was not confirmed.",
  ];
  return {
    subject: `Confirm this address for the notices of ${accountName}`,
    text: `${text.join("\n\n")}\n`,
  };
}

/** Longer than a mail may take, so that one which is still being sent is not found to be cut. */
const CLAIM_MS = 60_000;
/** A mail that has not left is tried again after 1, 4, 16, 64 and 256 minutes. */
const TRIES_MAX = 6;
const FIRST_RETRY_MS = 60_000;
const RETRY_RATIO = 4;

const TOKEN_VALID_DAYS = 7;
/** A link that nobody has opened is good for so long, and its address is forgotten then. */
const TOKEN_VALID_MS = TOKEN_VALID_DAYS * DAY_MS;

/** Below the public URL; the token follows. */
const CONFIRMATION_PATH = "/notices/confirm";

export type SendingOptions = {
  readonly pool: Pool;
  readonly send: SendMail;
  /** The API's, without /v1. */
  readonly publicUrl: string;
  readonly onEnded: (mail: ClaimedMail, ending: MailEnding) => void;
};

/** Sends one mail that is due. False: none is. A connection is never held while the mail server is waited for. */
export async function sendNextMail(options: SendingOptions, signal: AbortSignal): Promise<boolean> {
  const { pool, send, publicUrl, onEnded } = options;
  const mail = await claimMail(pool, CLAIM_MS, NOTICES_PER_MAIL_MAX);
  if (mail === null) return false;
  const text = await textOf(mail, pool, publicUrl);
  const ending: MailEnding =
    text === null
      ? { status: "failed", error: "nothing left to tell" }
      : endingOf(await send({ id: mail.id, to: mail.address, ...text }, signal), mail, signal.aborted);
  await settleMail(pool, mail, ending);
  onEnded(mail, ending);
  return true;
}

/** Null: the recipient was removed or has confirmed, or the notices are forgotten. */
async function textOf(mail: ClaimedMail, pool: Pool, publicUrl: string): Promise<MailText | null> {
  if (mail.notices !== null) return noticeMail(mail, mail.notices, publicUrl);
  // Made here, so that no row ever holds it.
  const token = newSecret();
  const isWanted = await storeConfirmationToken(pool, mail.recipientId, digestSecret(token), TOKEN_VALID_MS);
  if (!isWanted) return null;
  return confirmationMail(plainName(mail.accountName), `${publicUrl}${CONFIRMATION_PATH}/${token}`);
}

/** What sending a mail came to. A stop of this process is no failure of the mail server's. */
export function endingOf(
  result: SendResult,
  { tries }: Pick<ClaimedMail, "tries">,
  isStopping: boolean,
): MailEnding {
  switch (result.kind) {
    case "sent":
      return { status: "sent" };
    case "perhaps_sent":
      return { status: "perhaps_sent", error: result.error };
    case "not_sent": {
      const { error } = result;
      if (isStopping) return { status: "waiting", error, againInMs: 0, isTry: false };
      if (result.isRefusedForGood || tries + 1 >= TRIES_MAX) return { status: "failed", error };
      return { status: "waiting", error, againInMs: FIRST_RETRY_MS * RETRY_RATIO ** tries, isTry: true };
    }
    default:
      throw new Error(`unknown result: ${JSON.stringify(result satisfies never)}`);
  }
}

/** On one line: it stands in a subject. */
function plainName(name: string): string {
  return name.replace(/\p{Cc}+/gu, " ").trim();
}

/** The pages that the links in mails lead to. */
export function confirmationsOf(pool: Pool): Confirmations {
  return {
    path: CONFIRMATION_PATH,
    ask: async (token) => {
      const found = await findConfirmation(pool, digestSecret(token));
      if (found === null) return null;
      if (found.isConfirmed) return confirmed(found);
      return {
        title: "Confirm this address",
        message:
          `Send notices about the webhooks of "${found.accountName}" to ${found.address}? ` +
          "If you did not expect this, close this page: nothing will be sent.",
        button: "Yes, send them",
      };
    },
    confirm: async (token) => {
      const found = await confirmRecipient(pool, digestSecret(token));
      return found === null ? null : confirmed(found);
    },
    invalid: {
      title: "This link is not valid",
      message:
        "It has expired, or the address was removed, or a newer email has replaced it. The person who added the " +
        "address can add it again, which sends a new link.",
      button: null,
    },
  };
}

function confirmed({ address, accountName }: Confirmation): ConfirmationPage {
  return {
    title: "Confirmed",
    message: `${address} gets notices about the webhooks of "${accountName}" from now on.`,
    button: null,
  };
}
