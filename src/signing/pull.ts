import type { WebhookEvent } from "./event.ts";
import { nextPage, type StopSignal } from "./feed-request.ts";
import type { Secrets } from "./verification-input.ts";
import { verifyWebhook } from "./verify.ts";

interface PullOptions {
  /** The API's URL, without /v1. */
  readonly baseUrl: string;
  /** An API key with the scope `analyses:read`. */
  readonly apiKey: string | undefined;
  /**
   * The cursor to go on from, as `onCursor` got it. Left out: the oldest event that is kept (7 days); "newest": only
   * what is published from now on.
   */
  readonly after?: string | undefined;
  /**
   * Called when everything up to this cursor has been handled: when the loop asks for the event behind a page's last
   * one, and about every 25 s while there is none. Store it, and pass it as `after` the next time. A crash before that
   * repeats at most a page.
   */
  readonly onCursor?: ((cursor: string) => void | Promise<void>) | undefined;
  /** Ends the loop without an error. */
  readonly signal?: StopSignal | undefined;
  /** Told of each failure that is retried, and after how many milliseconds. */
  readonly onRetry?: ((error: unknown, afterMs: number) => void) | undefined;
  /** As for `verifyWebhook`. Default 300. */
  readonly toleranceSeconds?: number | undefined;
}

export type PullWebhooksOptions = PullOptions & Secrets;

/**
 * Every event of the account, oldest first, for ever: for receivers that the service cannot reach, and for finding what
 * was missed. Each is verified as a webhook that was delivered. When there are none, it waits for the next; when the
 * service does not answer, it asks again.
 *
 * Each event comes once, but after a crash those since the last cursor come again, and whoever receives webhooks, too,
 * gets them both ways: handle each `id` once.
 *
 * @throws WebhookPullError when the service refuses (key, scope, an expired cursor)
 * @throws WebhookVerificationError when an event does not verify; the cursor stays before its page
 */
export async function* pullWebhooks(options: PullWebhooksOptions): AsyncGenerator<WebhookEvent, void, void> {
  const { baseUrl, apiKey, onCursor, signal: stop, onRetry } = options;
  if (typeof apiKey !== "string" || apiKey === "") {
    throw new TypeError("apiKey is missing. Check that the configuration it comes from is set.");
  }
  let cursor = options.after;
  for (;;) {
    const page = await nextPage({ baseUrl, apiKey, cursor, stop, onRetry, onCursor });
    if (page === null) return;
    // All of them now: by the time that the last is handled, its signature may be too old.
    const events = page.items.map(({ body, signature }) => verified(body, signature, options));
    for (const event of events) {
      if (stop?.aborted) return;
      yield event;
    }
    cursor = page.next_cursor;
    await onCursor?.(cursor);
  }
}

function verified(body: string, header: string, { secret, secrets, toleranceSeconds }: PullWebhooksOptions) {
  const given = { rawBody: new TextEncoder().encode(body), header, toleranceSeconds };
  return verifyWebhook(secrets === undefined ? { ...given, secret } : { ...given, secrets });
}
