import { createHash, randomBytes } from "node:crypto";
import type { Pool } from "pg";
import { DAY_MS } from "../model/time.ts";
import {
  type ClaimedMail,
  claimMail,
  type MailEnding,
  settleMail,
  storeConfirmationToken,
} from "../store/notice-mails.ts";
import { confirmationMail, type MailText, NOTICES_PER_MAIL_MAX, noticeMail } from "./mail-text.ts";
import type { SendMail, SendResult } from "./smtp.ts";

/** Longer than a mail may take, so that one which is still being sent is not found to be cut. */
const CLAIM_MS = 60_000;
/** A mail that has not left is tried again after 1, 4, 16, 64 and 256 minutes. */
const TRIES_MAX = 6;
const FIRST_RETRY_MS = 60_000;
const RETRY_RATIO = 4;

const TOKEN_BYTES = 32;
const TOKEN_VALID_DAYS = 7;
/** A link that nobody has opened is good for so long, and its address is forgotten then. */
const TOKEN_VALID_MS = TOKEN_VALID_DAYS * DAY_MS;

/** Where the page is that a link leads to, below the public URL; the token follows. */
export const CONFIRMATION_PATH = "/notices/confirm";

export function digestToken(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}

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
  const name = plainName(mail.accountName);
  if (mail.notices !== null) {
    if (mail.notices.length === 0) return null;
    const account = { name, recipientId: mail.recipientId };
    return noticeMail(account, mail.notices, mail.noticesCount, publicUrl);
  }
  // Made here, so that no row ever holds it.
  const token = randomBytes(TOKEN_BYTES).toString("base64url");
  const isWanted = await storeConfirmationToken(pool, mail.recipientId, digestToken(token), TOKEN_VALID_MS);
  if (!isWanted) return null;
  return confirmationMail(name, `${publicUrl}${CONFIRMATION_PATH}/${token}`, TOKEN_VALID_DAYS);
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
