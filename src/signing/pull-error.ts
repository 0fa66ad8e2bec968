/** Of a Response, what is read here. */
interface Answer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  json(): Promise<unknown>;
}

/**
 * The service refused to give events, and would do so again. Its message is safe to log: it holds neither the key nor
 * an event.
 */
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
