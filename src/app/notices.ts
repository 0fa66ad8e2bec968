import type { Pool } from "pg";
import type { Logger } from "pino";
import type { Config } from "../base/config/config.ts";
import { createNoticeMails, type NoticeMails } from "../base/metrics/queue-metrics.ts";
import { noteCertificates, noteEndpointNews } from "../delivery/endpoint-health-sql.ts";
import { startEndpointWatch } from "../delivery/endpoint-watch.ts";
import type { ProcessMetrics } from "../delivery/process-metrics.ts";
import type { SendingOptions } from "../notices/mail-sending.ts";
import { startNoticeWork } from "../notices/notice-work.ts";
import { createSendMail } from "../notices/smtp.ts";

/** How often what was seen is written, and looked through. */
const EVERY_MAX_MS = 5_000;
const EVERY_MIN_MS = 100;

/**
 * Watches endpoints, makes notices and sends mails, beside a dispatcher that waits for none of it. `observer` is to be
 * told of every attempt; `stop` writes what was seen until now.
 */
export function startNotices(config: Config, pool: Pool, log: Logger, metrics: ProcessMetrics) {
  const mails = createNoticeMails(metrics.registry);
  const onError = (work: "watch" | "look" | "send", err: unknown) => {
    metrics.faults.of({ work: "notices" }).add();
    log.warn({ work, err }, "notices: an internal or database error; trying again");
  };
  // A compressed retry window (demo, tests) compresses this, too.
  const everyMs = Math.min(EVERY_MAX_MS, Math.max(EVERY_MIN_MS, config.retryWindowSeconds * 10));
  const watch = startEndpointWatch({
    everyMs,
    noteNews: (news) => noteEndpointNews(pool, news),
    noteCertificates: (seen) => noteCertificates(pool, seen),
    onError: (error) => onError("watch", error),
  });
  const sending = sendingOf(config);
  if (sending === null) log.info("SMTP_URL is unset: notices are listed by the API, and no mail is sent");
  const stopWork = startNoticeWork({
    pool,
    everyMs,
    analysisRetentionMs: config.analysisRetentionSeconds * 1_000,
    onNotice: (kind, accountId) => log.info({ kind, account_id: accountId }, "notice"),
    sending: sending && { ...sending, onEnded: mailLog(log, mails) },
    onCut: (mailId) => {
      mails.of({ result: "perhaps_sent" }).add();
      const fields = { mail_id: mailId, status: "perhaps_sent" };
      log.warn(fields, "mail: the process that was sending it ended; perhaps sent");
    },
    onError,
  });
  return {
    observer: watch.observer,
    stop: async () => void (await Promise.all([watch.stop(), stopWork()])),
  };
}

/** Null: no mail is sent. What SMTP_URL requires is set with it, or the configuration would not have been read. */
function sendingOf({ smtpUrl, noticesFrom, publicUrl }: Config) {
  if (smtpUrl === null) return null;
  return { send: createSendMail({ url: smtpUrl, from: noticesFrom! }), publicUrl: publicUrl! };
}

/** A line for each try, without the address: that is the customers', and in the list of recipients. */
function mailLog(log: Logger, mails: NoticeMails): SendingOptions["onEnded"] {
  return (mail, ending) => {
    mails.of({ result: ending.status }).add();
    const fields = { mail_id: mail.id, account_id: mail.accountId, status: ending.status };
    if (ending.status === "sent") log.info(fields, "mail");
    else log.warn({ ...fields, error: ending.error, try: mail.tries + 1 }, "mail");
  };
}
