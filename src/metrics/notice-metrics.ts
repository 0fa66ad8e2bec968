import { NOTICE_KINDS } from "../model/notices.ts";
import type { MetricsRegistry } from "./registry.ts";

export type NoticeMetrics = ReturnType<typeof createNoticeMetrics>;

/** The metrics of notices and their mails, in dispatchers. */
export function createNoticeMetrics(registry: MetricsRegistry) {
  return {
    notices: registry.counter({
      name: "sealpost_notices_total",
      help: "Notices made by this dispatcher, by kind.",
      unit: "notices",
      labels: { kind: NOTICE_KINDS },
    }),
    mails: registry.counter({
      name: "sealpost_notice_mails_total",
      help:
        "Tries to send a mail about notices, by how they ended: sent, perhaps_sent (cut on its way), failed (given " +
        "up), or waiting for another try.",
      unit: "mails",
      labels: { result: ["sent", "perhaps_sent", "failed", "waiting"] },
    }),
    faults: registry.counter({
      name: "sealpost_notice_faults_total",
      help: "Internal or database errors while watching endpoints, looking for news or sending mails; each is retried.",
      unit: "faults",
      labels: { work: ["watch", "look", "send"] },
    }),
  };
}
