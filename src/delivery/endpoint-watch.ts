import type { DispatchObserver } from "./attempt-observers.ts";
import type { EndpointNews, SeenCertificate } from "./endpoint-health-sql.ts";

/** Accounts in one statement. */
const BATCH_MAX = 1_000;
/** Accounts whose certificate is known to be written; of more, some are written again, which changes nothing. */
const KNOWN_CERTIFICATES_MAX = 20_000;

export type EndpointWatchOptions = {
  readonly everyMs: number;
  readonly noteNews: (news: readonly EndpointNews[]) => Promise<void>;
  readonly noteCertificates: (seen: readonly SeenCertificate[]) => Promise<void>;
  readonly onError: (error: unknown) => void;
};

type Seen = { -readonly [Name in keyof EndpointNews]: EndpointNews[Name] };

export type EndpointWatch = ReturnType<typeof startEndpointWatch>;

/**
 * What endpoints go through, by account, written every few seconds. Nothing waits for it: what could not be written, or
 * was seen by a process that died, is lost, and the notices that are made of it are checked against the log.
 */
export function startEndpointWatch({ everyMs, noteNews, noteCertificates, onError }: EndpointWatchOptions) {
  let seenByAccount = new Map<string, Seen>();
  let certificates = new Map<string, SeenCertificate>();
  const known = new Map<string, string>();
  let writing: Promise<void> | null = null;

  function seenOf(accountId: string): Seen {
    let seen = seenByAccount.get(accountId);
    if (seen === undefined) {
      seen = {
        accountId,
        url: null,
        succeededAtMs: null,
        failingSinceMs: null,
        failedAttempts: 0,
        abandoned: 0,
        errorCode: null,
      };
      seenByAccount.set(accountId, seen);
    }
    return seen;
  }

  /** Most attempts are posted on a kept connection, or show a certificate that is known. */
  function noteCertificate(accountId: string, targetUrl: string, expiresAtMs: number): void {
    const shown = `${expiresAtMs} ${targetUrl}`;
    if (known.get(accountId) === shown) return;
    if (known.size >= KNOWN_CERTIFICATES_MAX) known.clear();
    known.set(accountId, shown);
    certificates.set(accountId, { accountId, host: new URL(targetUrl).host, expiresAtMs });
  }

  async function write(): Promise<void> {
    const news = [...seenByAccount.values()];
    const shown = [...certificates.values()];
    seenByAccount = new Map();
    certificates = new Map();
    try {
      while (news.length > 0) {
        await noteNews(news.slice(0, BATCH_MAX));
        news.splice(0, BATCH_MAX);
      }
      while (shown.length > 0) await noteCertificates(shown.splice(0, BATCH_MAX));
    } catch (error) {
      for (const older of news) keep(older);
      // Written once they are seen again.
      known.clear();
      onError(error);
    }
  }

  /** What could not be written goes into the next write, under what was seen meanwhile. */
  function keep(older: Seen): void {
    const newer = seenOf(older.accountId);
    newer.abandoned += older.abandoned;
    newer.url ??= older.url;
    newer.errorCode ??= older.errorCode;
    if (newer.succeededAtMs !== null) return;
    newer.succeededAtMs = older.succeededAtMs;
    newer.failingSinceMs = older.failingSinceMs ?? newer.failingSinceMs;
    newer.failedAttempts += older.failedAttempts;
  }

  /** Deliveries that brought their own URL do not concern the endpoint. */
  const observer: Pick<DispatchObserver, "attemptRecorded"> = {
    attemptRecorded: (delivery, { recording, result }, recorded) => {
      if (delivery.webhookUrl !== null || recorded !== "ours") return;
      const { attempt, next } = recording;
      const isLost = next.status === "abandoned" && next.reason !== "no_target";
      if (attempt === null && !isLost) return;
      const seen = seenOf(delivery.accountId);
      if (isLost) seen.abandoned += 1;
      if (attempt === null) return;
      if (attempt.outcome === "succeeded") {
        seen.succeededAtMs = attempt.endedAtMs;
        seen.failingSinceMs = null;
        seen.failedAttempts = 0;
      } else {
        seen.failingSinceMs ??= attempt.endedAtMs;
        seen.failedAttempts += 1;
        seen.url = attempt.targetUrl;
        seen.errorCode = attempt.errorCode;
      }
      const expiresAtMs = result?.certificateEndsAtMs ?? null;
      if (expiresAtMs !== null) noteCertificate(delivery.accountId, attempt.targetUrl, expiresAtMs);
    },
  };

  const timer = setInterval(() => {
    writing ??= write().finally(() => {
      writing = null;
    });
  }, everyMs);
  return {
    observer,
    /** Writes what is left. */
    async stop(): Promise<void> {
      clearInterval(timer);
      await writing;
      await write();
    },
  };
}
