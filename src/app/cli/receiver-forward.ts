import type { Command } from "commander";
import { readConfig } from "../../base/config/config.ts";
import { webhookHeaders } from "../../delivery/webhook.ts";
import { createAddressSet } from "../../egress/rules/address.ts";
import { bareHost } from "../../egress/rules/host.ts";
import { WebhookPullError } from "../../signing/index.ts";
import { nextPage, type PulledItem } from "../../signing/pull.ts";
import { httpUrl } from "../listening.ts";
import { type Announce, createAnnounce, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { readOptionFile } from "./options.ts";

/** An integrator's own setting, and none of Sealpost's configuration. */
const VARIABLE = "SEALPOST_API_KEY";

const HELP = `
Events are pulled from the API with the account's key, so neither a tunnel nor an endpoint is needed. Each is posted
once, exactly as a webhook is, with a signature that is valid now; the receiver verifies it with the account's signing
secret. Nothing is sent again: what the receiver refuses is printed, and the next one follows.

  export ${VARIABLE}=…        # a key with the scope analyses:read
  sealpost receiver forward --to http://localhost:3000/webhooks`;

export function addReceiverForward(receiver: Command, context: ProcessContext): void {
  receiver
    .command("forward")
    .description("pull an account's events and post them to a receiver on this machine, until Ctrl-C")
    .requiredOption("--to <url>", "the receiver's URL on this machine")
    .option("--api <url>", "the API's URL, without /v1 (default: from this configuration)")
    .option(
      "--key-file <path>",
      `a file with the API key (/dev/stdin for standard input); default: ${VARIABLE}`,
    )
    .option("--from <cursor>", "where to begin: newest, oldest, or a cursor of the feed", "newest")
    .option("--unsafe-any-target", "post to other machines, too")
    .option("--json", "print events as JSON lines")
    .addHelpText("after", HELP)
    .action(async ({ to, api, keyFile, from, unsafeAnyTarget, json }) => {
      const target = readTarget(to, unsafeAnyTarget === true);
      const apiUrl = readApiUrl(context, api);
      const apiKey = await readApiKey(context, keyFile);
      const announce = createAnnounce(context, { json });
      await forward(context, announce, target, apiUrl, apiKey, from === "oldest" ? undefined : from);
    });
}

/** @throws UsageError unless it is an http or https URL, of this machine unless `isAnyAllowed` */
function readTarget(text: string, isAnyAllowed: boolean): URL {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") {
    throw new UsageError(
      "--to must be an http:// or https:// URL without a user name, such as http://localhost:3000/webhooks.",
    );
  }
  if (isAnyAllowed || url.hostname === "localhost" || isLoopback(bareHost(url.hostname))) return url;
  throw new UsageError(
    `--to names ${url.hostname}, which is not this machine: events go to localhost, 127.0.0.0/8 or [::1]. ` +
      "With --unsafe-any-target they go anywhere.",
  );
}

const isLoopback = createAddressSet(["127.0.0.0/8", "::1"]);

/** Without /v1. */
function readApiUrl({ env }: ProcessContext, given: string | undefined): string {
  if (given === undefined) {
    const { publicUrl, host, port } = readConfig(env);
    return publicUrl ?? httpUrl(host, port);
  }
  const url = URL.parse(given);
  if (url !== null && /^https?:$/.test(url.protocol) && url.search === "" && url.username === "") {
    return url.href.replace(/\/+(?:v1\/?)?$/, "");
  }
  throw new UsageError("--api must be an http:// or https:// URL, such as https://api.example.com.");
}

/** @throws UsageError without one, and for a file that cannot be read */
async function readApiKey({ env }: ProcessContext, keyFile: string | undefined): Promise<string> {
  const given = keyFile === undefined ? (env[VARIABLE] ?? "") : await readOptionFile("--key-file", keyFile);
  const key = given.trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new UsageError(
    key === ""
      ? `No API key: give --key-file, or set ${VARIABLE}.`
      : "The API key contains characters that no key has.",
  );
}

/** What is older is asked for again before it is posted: receivers refuse signatures of 300 s. */
const PAGE_AGE_MAX_MS = 60_000;

/**
 * Pulls the account's events and POSTs each to a local receiver, once, until shutdown.
 * @param cursor of the feed, or "newest"; undefined: the oldest event that is kept
 */
async function forward(
  context: ProcessContext,
  announce: Announce,
  target: URL,
  apiUrl: string,
  apiKey: string,
  cursor: string | undefined,
): Promise<void> {
  const { href: to } = target;
  const stop = context.createShutdownSignal();
  announce("forwarding", { from: apiUrl, to }, `Forwarding events from ${apiUrl} to ${to}. Ctrl-C stops.`);
  /** Each line of a person begins with the time, and each of a program has it. */
  const tell = (event: string, fields: Readonly<Record<string, unknown>>, text: string) => {
    const at = new Date(context.now()).toISOString();
    announce(event, { at, ...fields }, `${at.slice(11, 23)}  ${text}`);
  };
  const onRetry = (error: unknown, afterMs: number) => {
    const reason = reasonOf(error);
    const text = `no answer from ${apiUrl} (${reason}); asking again in ${afterMs} ms`;
    tell("waiting", { reason, retry_after_ms: afterMs }, text);
  };
  let after = cursor;
  const ask = () => nextPage({ baseUrl: apiUrl, apiKey, cursor: after, stop, onRetry }).catch(explained);

  for (let page = await ask(); page !== null; page = await ask()) {
    let fresh = page;
    let askedAt = performance.now();
    for (const { delivery_id } of page.items) {
      if (performance.now() - askedAt > PAGE_AGE_MAX_MS) {
        fresh = (await ask()) ?? fresh;
        askedAt = performance.now();
      }
      if (stop.aborted) return;
      const item = fresh.items.find((one) => one.delivery_id === delivery_id);
      if (item === undefined) continue;
      const sent = await post(target, item, stop);
      if (stop.aborted) return;
      const { status, error, duration_ms } = sent;
      const answer = status === null ? `no answer (${error})` : String(status);
      const text = `POST ${to} → ${answer}  ${item.event}, delivery ${delivery_id}, ${duration_ms} ms`;
      tell("forwarded", { delivery_id, name: item.event, to, ...sent }, text);
    }
    after = page.next_cursor;
  }
}

/** For somebody who has stopped the receiver in a debugger. */
const ANSWER_WITHIN_MS = 60_000;

async function post(target: URL, { body, signature }: PulledItem, stop: AbortSignal) {
  const startedAt = performance.now();
  const sent = (status: number | null, error: string | null) => ({
    status,
    error,
    duration_ms: Math.round(performance.now() - startedAt),
  });
  try {
    const response = await fetch(target, {
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

const REMEDIES: Readonly<Record<string, string>> = {
  unauthorized: "Use a valid API key of this environment.",
  access_denied: "The key needs the scope analyses:read.",
  account_required: "Use an account's own key: a staff key belongs to no account.",
  cursor_expired: "Omit --from, or start at the oldest event.",
};

function explained(error: unknown): never {
  if (!(error instanceof WebhookPullError)) throw error;
  const remedy = REMEDIES[error.code] ?? "";
  throw new UsageError(`${error.message} ${remedy}`.trimEnd(), { cause: error });
}
