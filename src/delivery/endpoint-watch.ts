import type { EndpointNews, SeenCertificate } from "./endpoint-health-sql.ts";
import type { DispatchObserver } from "./observer.ts";

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

/**
 * What endpoints go through, by account, written every few seconds. Nothing waits for it: what could not be written, or
 * was seen by a process that died, is lost, and the notices that are made of it are checked against the log.
 */
export class EndpointWatch {
  readonly #options: EndpointWatchOptions;
  #seen = new Map<string, Seen>();
  #certificates = new Map<string, SeenCertificate>();
  readonly #known = new Map<string, string>();
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;

  constructor(options: EndpointWatchOptions) {
    this.#options = options;
  }

  /** Deliveries that brought their own URL do not concern the endpoint. */
  readonly observer: DispatchObserver = {
    attemptRecorded: (delivery, { recording, result }, recorded) => {
      if (delivery.webhookUrl !== null || recorded !== "ours") return;
      const { attempt, next } = recording;
      const isLost = next.status === "abandoned" && next.reason !== "no_target";
      if (attempt === null && !isLost) return;
      const seen = this.#seenOf(delivery.accountId);
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
      if (expiresAtMs !== null) this.#noteCertificate(delivery.accountId, attempt.targetUrl, expiresAtMs);
    },
    mustBeQuarantined: () => undefined,
    letGo: () => undefined,
    failed: () => undefined,
  };

  start(): void {
    this.#timer = setInterval(() => {
      this.#writing ??= this.#write().finally(() => {
        this.#writing = null;
      });
    }, this.#options.everyMs);
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#writing;
    await this.#write();
  }

  #seenOf(accountId: string): Seen {
    let seen = this.#seen.get(accountId);
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
      this.#seen.set(accountId, seen);
    }
    return seen;
  }

  /** Most attempts are posted on a kept connection, or show a certificate that is known. */
  #noteCertificate(accountId: string, targetUrl: string, expiresAtMs: number): void {
    const shown = `${expiresAtMs} ${targetUrl}`;
    if (this.#known.get(accountId) === shown) return;
    if (this.#known.size >= KNOWN_CERTIFICATES_MAX) this.#known.clear();
    this.#known.set(accountId, shown);
    this.#certificates.set(accountId, { accountId, host: new URL(targetUrl).host, expiresAtMs });
  }

  async #write(): Promise<void> {
    const news = [...this.#seen.values()];
    const certificates = [...this.#certificates.values()];
    this.#seen = new Map();
    this.#certificates = new Map();
    try {
      while (news.length > 0) {
        await this.#options.noteNews(news.slice(0, BATCH_MAX));
        news.splice(0, BATCH_MAX);
      }
      while (certificates.length > 0) {
        await this.#options.noteCertificates(certificates.splice(0, BATCH_MAX));
      }
    } catch (error) {
      for (const older of news) this.#keep(older);
      // Written once they are seen again.
      this.#known.clear();
      this.#options.onError(error);
    }
  }

  /** What could not be written goes into the next write, under what was seen meanwhile. */
  #keep(older: Seen): void {
    const newer = this.#seenOf(older.accountId);
    newer.abandoned += older.abandoned;
    newer.url ??= older.url;
    newer.errorCode ??= older.errorCode;
    if (newer.succeededAtMs !== null) return;
    newer.succeededAtMs = older.succeededAtMs;
    newer.failingSinceMs = older.failingSinceMs ?? newer.failingSinceMs;
    newer.failedAttempts += older.failedAttempts;
  }
}
