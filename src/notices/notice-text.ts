import { explainErrorCode } from "../base/model/error-codes.ts";
import {
  type FailingReason,
  type NoticeContent,
  type NoticeOf,
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

export function noticeText(notice: NoticeContent): NoticeText {
  switch (notice.kind) {
    case "endpoint.failing":
      return failingText(notice.details);
    case "endpoint.recovered":
      return recoveredText(notice.details);
    case "secret.expiring":
      return {
        title: "The previous signing secret expires",
        message:
          `The signing secret was rotated on ${timeText(notice.details.rotatedAtMs)}. The previous one stops signing ` +
          `on ${timeText(notice.details.expiresAtMs)}; from then on, webhooks carry only the new signature.`,
        remedy:
          "Make sure that your receiver verifies with the new secret. Checking the receiver tells: " +
          "POST /v1/webhooks/endpoint/check.",
      };
    case "certificate.expiring":
      return {
        title: `The certificate of ${notice.details.host} expires`,
        message: `The TLS certificate of ${notice.details.host} expires on ${timeText(notice.details.expiresAtMs)}.`,
        remedy: "Renew it before then: webhooks are not delivered to a server whose certificate has expired.",
      };
    default:
      throw new Error(`unknown kind of notice: ${JSON.stringify(notice satisfies never)}`);
  }
}

type Failing = NoticeOf<"endpoint.failing">["details"];

const FAILING_TITLES: Record<FailingReason, (host: string) => string> = {
  no_success: (host) => `${host} does not accept webhooks`,
  abandoned: (host) => `Webhooks to ${host} were abandoned`,
};

function failingText({ url, reason, sinceMs, failedAttempts, abandoned, errorCode }: Failing): NoticeText {
  const host = hostOf(url);
  const cause =
    errorCode === null ? "" : ` The last error was ${errorCode}: ${explainErrorCode(errorCode).message}`;
  const lost = `${deliveries(abandoned)} abandoned and will not be tried again unless replayed.`;
  const since =
    sinceMs === null
      ? ""
      : `No webhook has been accepted since ${timeText(sinceMs)}; ${attempts(failedAttempts)}.`;
  const said = [since, abandoned > 0 ? lost : ""].filter((sentence) => sentence !== "").join(" ");
  return {
    title: FAILING_TITLES[reason](host),
    message: `${said}${cause}`,
    remedy:
      "Check the receiver; the delivery log shows each attempt and its answer. What failed is retried by itself; " +
      "what was abandoned has to be replayed once the receiver works: POST /v1/webhooks/replays.",
  };
}

function recoveredText({
  url,
  succeededAtMs,
  toReplay,
}: NoticeOf<"endpoint.recovered">["details"]): NoticeText {
  const host = hostOf(url);
  const count =
    toReplay >= TO_REPLAY_MAX ? `${TO_REPLAY_MAX.toLocaleString("en")} or more` : String(toReplay);
  const waiting = toReplay === 1 ? "1 abandoned delivery waits" : `${count} abandoned deliveries wait`;
  return {
    title: `${host} accepts webhooks again`,
    message:
      `A webhook was accepted on ${timeText(succeededAtMs)}. ` +
      (toReplay === 0 ? "Nothing waits to be replayed." : `${waiting} to be replayed.`),
    remedy:
      toReplay === 0
        ? "Nothing."
        : 'Replay them: POST /v1/webhooks/replays with the filter {"status": "abandoned"}.',
  };
}

function deliveries(count: number): string {
  return count === 1 ? "1 delivery was" : `${count.toLocaleString("en")} deliveries were`;
}

function attempts(count: number): string {
  return count === 1 ? "1 attempt has failed" : `${count.toLocaleString("en")} attempts have failed`;
}

/** Only the host: customers put tokens into paths, and a mail goes further than the API. */
function hostOf(url: string): string {
  return new URL(url).host;
}

/** `22 November 2026, 10:43 UTC` */
export function timeText(ms: number): string {
  const date = new Date(ms);
  const day = date.toLocaleDateString("en-GB", {
    day: "numeric",
    month: "long",
    year: "numeric",
    timeZone: "UTC",
  });
  return `${day}, ${date.toISOString().slice(11, 16)} UTC`;
}
