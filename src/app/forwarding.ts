import { BlockList } from "node:net";
import { webhookHeaders } from "../delivery/webhook.ts";
import { type FeedPage, nextPage, type PulledItem } from "../signing/feed-request.ts";
import { WebhookPullError } from "../signing/index.ts";
import { type Announce, UsageError } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";

/** For somebody who has stopped the receiver in a debugger. */
const ANSWER_WITHIN_MS = 60_000;
/** What is older is asked for again before it is posted: receivers refuse signatures of 300 s. */
const PAGE_AGE_MAX_MS = 60_000;

export type ForwardOptions = {
  /** The API's URL, without /v1. */
  readonly apiUrl: string;
  readonly apiKey: string;
  readonly to: URL;
  /** A cursor, or "newest"; undefined: the oldest event that is kept. */
  readonly from: string | undefined;
};

/** @throws UsageError unless it is an http or https URL, of this machine unless `isAnyAllowed` */
export function readForwardTarget(text: string, isAnyAllowed: boolean): URL {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") {
    throw new UsageError(
      "--to must be an http:// or https:// URL without a user name, such as http://localhost:3000/webhooks.",
    );
  }
  if (isAnyAllowed || isLoopback(url.hostname)) return url;
  throw new UsageError(
    `--to names ${url.hostname}, which is not this machine: events go to localhost, 127.0.0.0/8 or [::1]. ` +
      "With --unsafe-any-target they go anywhere.",
  );
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8);
loopback.addAddress("::1", "ipv6");

function isLoopback(hostname: string): boolean {
  if (hostname === "localhost") return true;
  const isIpv6 = hostname.startsWith("[");
  return isIpv6 ? loopback.check(hostname.slice(1, -1), "ipv6") : loopback.check(hostname, "ipv4");
}

/** Pulls the account's events and POSTs each to a local receiver, once, until shutdown. */
export async function runForwarding(
  { createShutdownSignal, now }: ProcessContext,
  options: ForwardOptions,
  announce: Announce,
): Promise<void> {
  const { apiUrl, apiKey, to } = options;
  const stop = createShutdownSignal();
  let cursor = options.from;
  announce(
    "forwarding",
    { from: apiUrl, to: to.href },
    `Forwarding events from ${apiUrl} to ${to.href}. Ctrl-C stops.`,
  );
  const timeText = () => new Date(now()).toISOString();
  const onRetry = (error: unknown, afterMs: number) => {
    const reason = reasonOf(error);
    const fields = { at: timeText(), reason, retry_after_ms: afterMs };
    announce(
      "waiting",
      fields,
      `${clock(fields.at)}  no answer from ${apiUrl} (${reason}); asking again in ${afterMs} ms`,
    );
  };
  const ask = () => nextPage({ baseUrl: apiUrl, apiKey, cursor, stop, onRetry }).catch(explained);

  for (let page = await ask(); page !== null; page = await ask()) {
    let fresh: FeedPage = page;
    let askedAt = performance.now();
    for (const { delivery_id } of page.items) {
      if (performance.now() - askedAt > PAGE_AGE_MAX_MS) {
        fresh = (await ask()) ?? fresh;
        askedAt = performance.now();
      }
      if (stop.aborted) return;
      const item = fresh.items.find((one) => one.delivery_id === delivery_id);
      if (item === undefined) continue;
      const sent = await post(to, item, stop);
      if (stop.aborted) return;
      const fields = { at: timeText(), delivery_id, name: item.event, to: to.href, ...sent };
      announce("forwarded", fields, forwardedText(fields));
    }
    cursor = page.next_cursor;
  }
}

type Sent = { readonly status: number | null; readonly error: string | null; readonly duration_ms: number };

async function post(to: URL, { body, signature }: PulledItem, stop: AbortSignal): Promise<Sent> {
  const startedAt = performance.now();
  const sent = (status: number | null, error: string | null) => ({
    status,
    error,
    duration_ms: Math.round(performance.now() - startedAt),
  });
  try {
    const response = await fetch(to, {
      method: "POST",
      headers: webhookHeaders({ signature, traceparent: null }),
      body,
      redirect: "manual",
      signal: AbortSignal.any([stop, AbortSignal.timeout(ANSWER_WITHIN_MS)]),
    });
    await response.body?.cancel();
    return sent(response.status, null);
  } catch (error) {
    return sent(null, reasonOf(error));
  }
}

/** A word or two: `ECONNREFUSED`, `TimeoutError`, `bad port`, a status. */
function reasonOf(error: unknown): string {
  if (error instanceof WebhookPullError) return `status ${error.status}`;
  const { cause, name } = error as Error;
  if (!(cause instanceof Error)) return name;
  return (cause as NodeJS.ErrnoException).code ?? cause.message;
}

function explained(error: unknown): never {
  if (!(error instanceof WebhookPullError)) throw error;
  const remedies: Readonly<Record<string, string>> = {
    unauthorized: "Give a valid API key of this environment.",
    access_denied: "The key needs the scope analyses:read.",
    account_required: "Give an account's own key: a staff key belongs to none.",
    cursor_expired: "Leave --from out, or begin at the oldest event.",
  };
  const remedy = remedies[error.code] ?? "";
  throw new UsageError(`${error.message} ${remedy}`.trimEnd(), { cause: error });
}

const clock = (at: string) => at.slice(11, 23);

function forwardedText(
  fields: Sent & { readonly at: string; delivery_id: string; name: string; to: string },
): string {
  const { at, to, status, error, name, delivery_id, duration_ms } = fields;
  const answer = status === null ? `no answer (${error})` : String(status);
  return `${clock(at)}  POST ${to} → ${answer}  ${name}, delivery ${delivery_id}, ${duration_ms} ms`;
}
