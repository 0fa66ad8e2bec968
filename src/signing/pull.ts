import { randomInt, randomUUID } from "node:crypto";
import type { WebhookEvent } from "./event.ts";
import { type Secrets, signatureInput } from "./verification-input.ts";
import { verifySignature, verifyWebhook } from "./verify.ts";

/** Of an AbortSignal, what is needed here: the type of neither Node nor a browser. */
export interface StopSignal {
  readonly aborted: boolean;
  addEventListener(type: "abort", listener: () => void): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

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
   * A name of your program's own, such as `billing`: the service keeps the cursor under it, for who has no place to.
   * Without `after`, it goes on behind the last page that was handled. For one process at a time.
   */
  readonly consumer?: string | undefined;
  /**
   * Told with each page if a second reader of the consumer's name was seen within a day, and when (ISO 8601): events
   * may be handled twice, or by the other alone.
   */
  readonly onOtherReader?: ((seenAt: string) => void) | undefined;
  /**
   * Called when everything up to this cursor has been handled: when the loop asks for the event behind a page's last
   * one, and about every 25 s while there is none. Store it, and pass it as `after` the next time. A crash before that
   * repeats at most a page.
   */
  readonly onCursor?: ((cursor: string) => void | Promise<void>) | undefined;
  /** Ends the loop without an error. */
  readonly signal?: StopSignal | undefined;
  /** Told of each failure that is retried, in a sentence that is safe to log, and after how many milliseconds. */
  readonly onRetry?: ((error: Error, afterMs: number) => void) | undefined;
  /** Called instead of yielding an event whose analysis was erased since. */
  readonly onErased?: ((deliveryId: string) => void | Promise<void>) | undefined;
  /** As for `verifyWebhook`. Default 300. */
  readonly toleranceSeconds?: number | undefined;
}

export type PullWebhooksOptions = PullOptions & Secrets;

/** `onCursor` is told of the cursor of each page that is empty. */
type FeedRequest = Pick<PullOptions, "baseUrl" | "onRetry" | "onCursor" | "consumer"> & {
  readonly apiKey: string;
  /** Undefined: from where the consumer is, or from the oldest event. */
  readonly cursor: string | undefined;
  readonly stop: StopSignal | undefined;
};

/**
 * Every event of the account, oldest first, for ever: for receivers that the service cannot reach, and for finding what
 * was missed. Each is verified as a webhook that was delivered. When there are none, it waits for the next; when the
 * service does not answer, it asks again.
 *
 * Each event comes once, but after a crash those since the last cursor come again, and whoever receives webhooks, too,
 * gets them both ways: handle each `id` once.
 * @throws WebhookPullError when the service refuses (key, scope, an expired cursor)
 * @throws WebhookVerificationError when an event does not verify; the cursor stays before its page
 */
export async function* pullWebhooks(options: PullWebhooksOptions): AsyncGenerator<WebhookEvent, void, void> {
  const { baseUrl, apiKey, consumer, onCursor, signal: stop, onRetry } = options;
  if (typeof apiKey !== "string" || apiKey === "") {
    throw new TypeError("apiKey is missing. Check that the configuration it comes from is set.");
  }
  let cursor = options.after;
  for (;;) {
    const request = { baseUrl, apiKey, consumer, cursor, stop, onRetry, onCursor };
    const page = await nextPage(request);
    if (page === null) return;
    if (page.other_reader) options.onOtherReader?.(page.other_reader.seen_at);
    // All of them now: by the time that the last is handled, its signature may be too old.
    const events = page.items.map((item) => ({ item, event: verified(item, options) }));
    for (const { item, event } of events) {
      if (stop?.aborted) return;
      if (event === null) await options.onErased?.(item.delivery_id);
      else yield event;
    }
    cursor = page.next_cursor;
    if (consumer !== undefined) await acknowledge(request, consumer, cursor);
    await onCursor?.(cursor);
  }
}

/** Null: its analysis was erased. */
function verified(
  { body, signature: header }: PulledItem,
  { secret, secrets, toleranceSeconds }: PullWebhooksOptions,
) {
  const given = { rawBody: new TextEncoder().encode(body), header, toleranceSeconds };
  const input = secrets === undefined ? { ...given, secret } : { ...given, secrets };
  if (!isErased(body)) return verifyWebhook(input);
  verifySignature(signatureInput(input));
  return null;
}

/** Whether the event's analysis was erased. */
export const isErased = (body: string) => body.endsWith(',"data":null}');

/** An event as the feed has it. */
export interface PulledItem {
  readonly delivery_id: string;
  readonly event: string;
  readonly body: string;
  readonly signature: string;
}

interface FeedPage {
  readonly items: readonly PulledItem[];
  readonly next_cursor: string;
  readonly other_reader?: { readonly seen_at: string } | null;
}

/** Of a Response, what is read here. */
interface Answer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  json(): Promise<unknown>;
}

/** The service refused, and would do so again. Safe to log: its message holds neither the key nor an event. */
export class WebhookPullError extends Error {
  override readonly name = "WebhookPullError";
  /**
   * The service's code, such as `unauthorized`, `access_denied` or `cursor_expired` (older than 7 days: read on without
   * `after`, and compare with your own records); `not_a_feed` where the answer is not the service's.
   */
  readonly code: string;
  readonly status: number;
  /** Whether the same may work later; such failures are retried, not thrown. */
  readonly isTemporary: boolean;
  /** What the service asks for; 0: nothing. */
  readonly retryAfterMs: number;

  constructor(code: string, status: number, message: string, retryAfterMs = 0) {
    super(message);
    this.code = code;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
    this.isTemporary = status === 408 || status === 429 || status >= 500;
  }

  static async of(response: Answer): Promise<WebhookPullError> {
    const { status } = response;
    const problem = ((await response.json().catch(() => null)) ?? {}) as Record<string, unknown>;
    const { code, title } = problem;
    const seconds = Number(response.headers.get("retry-after") ?? 0);
    const retryAfterMs = seconds >= 0 ? Math.min(seconds, 300) * 1_000 : 0;
    if (typeof code !== "string" || typeof title !== "string") {
      const message = `The answer has status ${status} and is not the service's. Check baseUrl.`;
      return new WebhookPullError("not_a_feed", status, message, retryAfterMs);
    }
    const message = `The service answered ${status}: ${title} (${code}).`;
    return new WebhookPullError(code, status, message, retryAfterMs);
  }
}

/** In place of a cursor: what is published from now on. Answered at once, with the cursor of this moment. */
const NEWEST = "newest";
const WAIT_SECONDS = 25;
/** Longer than the service holds an answer and a large page takes: a network that has forgotten us never answers. */
const ANSWER_WITHIN_MS = 90_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 30_000;
/** A service with too many waiting answers at once: it is not asked again at once. */
const EMPTY_AGAIN_MS = 1_000;
/** While nothing comes: a place that is kept would be too old one day, and refused. */
const ACKNOWLEDGE_EVERY_MS = 3_600_000;

/**
 * The next page that is not empty, however long that takes; null: stopped.
 * @throws WebhookPullError for what a retry would not change
 */
export async function nextPage(request: FeedRequest): Promise<FeedPage | null> {
  const { stop, onCursor } = request;
  let { cursor } = request;
  let acknowledgedAt = performance.now();
  while (!stop?.aborted) {
    const startedAt = performance.now();
    const wanted = cursor;
    const page = await persist(request, () => askOnce({ ...request, cursor: wanted }));
    if (page === null || page.items.length > 0) return page;
    cursor = page.next_cursor;
    // Nothing came, but whoever begins there again misses nothing; "newest", or a cursor of a week ago, would.
    if (cursor !== wanted) await onCursor?.(cursor);
    if (request.consumer !== undefined && startedAt > acknowledgedAt + ACKNOWLEDGE_EVERY_MS) {
      acknowledgedAt = startedAt;
      await acknowledge(request, request.consumer, cursor);
      // From the place that is kept, which the service then moves on.
      cursor = undefined;
    }
    const isEarly = wanted !== NEWEST && performance.now() - startedAt < EMPTY_AGAIN_MS;
    if (isEarly) await delay(EMPTY_AGAIN_MS, stop);
  }
  return null;
}

/** Also for who is told to stop: what was handled does not come again. */
async function acknowledge(request: FeedRequest, consumer: string, cursor: string): Promise<void> {
  const path = `/consumers/${encodeURIComponent(consumer)}/ack`;
  // One key for all tries, or the second would look like another reader.
  const headers = { "content-type": "application/json", "idempotency-key": randomUUID() };
  const init = { method: "POST", headers, body: JSON.stringify({ cursor }) };
  await persist(request, () => ask({ ...request, stop: undefined }, path, init, 204, async () => undefined));
}

/**
 * Asks until there is an answer; null: stopped. Failures that may pass are retried: no answer, 5xx, 408, 429.
 * @throws WebhookPullError for what a retry would not change
 */
async function persist<T>(
  { baseUrl, stop, onRetry }: FeedRequest,
  once: () => Promise<T>,
): Promise<T | null> {
  for (let failures = 0; ; failures++) {
    try {
      return await once();
    } catch (error) {
      if (stop?.aborted) return null;
      if (error instanceof WebhookPullError && !error.isTemporary) throw error;
      const asked = error instanceof WebhookPullError ? error.retryAfterMs : 0;
      const backoff = Math.min(RETRY_MIN_MS * 2 ** failures, RETRY_MAX_MS);
      const afterMs = Math.max(asked, Math.round((backoff * (100 + randomInt(100))) / 200));
      onRetry?.(error instanceof WebhookPullError ? error : noAnswer(baseUrl, error), afterMs);
      await delay(afterMs, stop);
      if (stop?.aborted) return null;
    }
  }
}

/** What fetch throws says only that it failed, and its cause why: by name, as a message may quote what was received. */
function noAnswer(baseUrl: string, cause: unknown): Error {
  const { cause: why = cause } = cause as { readonly cause?: unknown };
  const { code, name } = why as { readonly code?: unknown; readonly name?: unknown };
  return new Error(`No answer from ${baseUrl} (${typeof code === "string" ? code : name}).`, { cause });
}

async function askOnce(request: FeedRequest): Promise<FeedPage> {
  const { cursor, consumer } = request;
  const query = new URLSearchParams({ wait: String(WAIT_SECONDS) });
  if (cursor !== undefined) query.set("cursor", cursor);
  if (consumer !== undefined) query.set("consumer", consumer);
  return await ask(request, `?${query}`, {}, 200, async (response) => {
    // Text of another kind is somebody else's answer; JSON that ends too early was cut on its way, and is asked again.
    const isJson = /^application\/json\b/i.test(response.headers.get("content-type") ?? "");
    return checkedPage(isJson ? await response.json() : null);
  });
}

/** @param more what follows the feed's path */
async function ask<T>(
  { baseUrl, apiKey, stop }: FeedRequest,
  more: string,
  { headers, ...init }: { readonly headers?: Record<string, string>; method?: string; body?: string },
  status: number,
  read: (answer: Answer) => Promise<T>,
): Promise<T> {
  const url = `${baseUrl.replace(/\/+$/, "")}/v1/webhooks/events${more}`;
  return await within(ANSWER_WITHIN_MS, stop, async (signal) => {
    const response = await fetch(url, {
      ...init,
      headers: { ...headers, authorization: `Bearer ${apiKey}`, accept: "application/json" },
      redirect: "manual",
      signal,
    });
    if (response.status !== status) throw await WebhookPullError.of(response);
    return await read(response);
  });
}

function checkedPage(page: unknown): FeedPage {
  const { items, next_cursor } = (page ?? {}) as Record<string, unknown>;
  const isPage =
    typeof next_cursor === "string" &&
    Array.isArray(items) &&
    items.every(({ body, signature }) => typeof body === "string" && typeof signature === "string");
  if (isPage) return page as FeedPage;
  throw new WebhookPullError("not_a_feed", 200, "The answer is not a page of the feed. Check baseUrl.");
}

/** Resolves after `ms`, or when stopped. */
async function delay(ms: number, stop: StopSignal | undefined): Promise<void> {
  await within(ms, stop, async (signal) => {
    if (signal.aborted) return;
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  });
}

/** Does it with a signal that aborts after `ms`, or when stopped. */
async function within<T>(
  ms: number,
  stop: StopSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ending = new AbortController();
  const end = () => ending.abort();
  const timer = setTimeout(end, ms);
  stop?.addEventListener("abort", end);
  if (stop?.aborted) end();
  try {
    return await work(ending.signal);
  } finally {
    clearTimeout(timer);
    stop?.removeEventListener("abort", end);
  }
}
