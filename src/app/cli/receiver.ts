import type { Command } from "commander";
import type { Config } from "../../base/config/config.ts";
import { webhookHeaders } from "../../delivery/webhook.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import type { ProbesOptions } from "../../receivers/probes.ts";
import type { ReceiverReport } from "../../receivers/receiver-check.ts";
import { WebhookPullError } from "../../signing/index.ts";
import { isErased, nextPage, type PulledItem } from "../../signing/pull.ts";
import { createReceiverChecking, refusedTarget, targetRulesOf } from "../egress.ts";
import { httpUrl } from "../listening.ts";
import { type Announce, createAnnounce, printResult, textTable, UsageError } from "../output.ts";
import { checkPlainReceiver, namesThisMachine, plainReceiverIn } from "../plain-receiver.ts";
import type { ProcessContext } from "../process-context.ts";
import { commandConfigOf } from "../state-folder.ts";
import { collect, readOptionFile } from "./options.ts";
import { addListen, addTry } from "./receiver-listen.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./secrets.ts";

export function addReceiverCommands(program: Command, context: ProcessContext): void {
  const receiver = program.command("receiver").description("run a webhook receiver, or check one");
  addTry(receiver, context);
  addCheck(receiver, context);
  addListen(receiver, context);
  addForward(receiver, context);
}

const CHECK_HELP = `
It sends 14 probes, up to 3 trials of the secret and a challenge in parallel, within 20 seconds, each with the header
sealpost-probe: 1, whether or not the receiver has ever returned a 2xx: check your own receivers only. Given two
secrets, it says which of them the receiver accepts. A correct receiver accepts the valid webhooks with a 2xx and
refuses the forged and the outdated ones. Every probe's analysis has "example": true.
A receiver on this machine (http://localhost, 127.0.0.0/8, [::1]) is checked through TLS that ends here, as behind a
tunnel, unless ENVIRONMENT is production.
The exit code is 0 when the receiver is right and 1 when something is wrong.`;

function addCheck(receiver: Command, context: ProcessContext): void {
  receiver
    .command("check")
    .description("check that a receiver accepts valid webhooks and refuses forgeries")
    .requiredOption("--url <url>", "a public https:// URL; in development also http://localhost")
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--json", "print JSON, even on a terminal")
    .addHelpText("after", CHECK_HELP)
    .action(async (options) => {
      const config = await commandConfigOf(context.env);
      const check = checkOf(options.url, config);
      const secrets = await readSigningSecrets(context, options);
      const report = await check({ secrets, nowMs: context.now() });
      printResult(context, options, report, reportText(report));
      context.setExitCode(report.verdict === "right" ? 0 : 1);
    });
}

/** @throws UsageError for a URL that webhooks may not go to */
function checkOf(text: string, config: Config): (sent: ProbesOptions) => Promise<ReceiverReport> {
  const plain = plainReceiverIn(text, config);
  if (plain !== null) return (sent) => checkPlainReceiver(plain, config, sent);
  const judged = judgeTargetUrl(text, targetRulesOf(config));
  if (judged.verdict === "refuse") throw refusedTarget(judged, config);
  return (sent) => createReceiverChecking(config)({ url: judged.url, ...sent });
}

const verdictTexts: Readonly<Record<ReceiverReport["verdict"], string>> = {
  right: "is right: it accepts valid webhooks and refuses all others.",
  faulty: "is faulty: webhooks to it get lost or are sent again.",
  dangerous: "is dangerous: it accepts what it must refuse.",
};

function reportText(report: ReceiverReport): string {
  const { url, verdict, faults, probes, accepts_secrets, connection, answered_by: answered } = report;
  const list = faults.map(
    ({ severity, message, remedy }, index) =>
      `${index + 1}. ${severity}: ${message}\n   What to do: ${remedy}`,
  );
  const rows = probes.map((probe) => [
    probe.verdict.replace("_", " "),
    probe.sent,
    probe.expected,
    probe.got,
    `${probe.duration_ms} ms`,
  ]);
  const parts = [
    `${url} ${verdictTexts[verdict]}`,
    ...list,
    ...secretsText(accepts_secrets),
    ...(report.answers_challenge === null ? [] : [CHALLENGE_TEXTS[`${report.answers_challenge}`]]),
    ...(answered === null ? [] : [`Answered by ${answered.name}, not the application. ${answered.evidence}`]),
    textTable(["verdict", "sent", "expected", "got", "time"], rows),
    connectionText(connection),
  ];
  return parts.join("\n\n");
}

const CHALLENGE_TEXTS = {
  true: "It answers a challenge.",
  false: "It does not answer a challenge, as it has to where TARGET_CONSENT is challenge.",
} as const;

/** During a rotation. */
function secretsText({ current, previous }: ReceiverReport["accepts_secrets"]): readonly string[] {
  if (current === null || previous === null) return [];
  if (current && previous) return ["It accepts both secrets."];
  if (current) return ["It accepts the current secret and no longer the previous one."];
  if (!previous) return ["It accepts neither of the two secrets alone."];
  return ["It accepts the previous secret only: give it the current one before the overlap ends."];
}

function connectionText(connection: ReceiverReport["connection"]): string {
  const { tls_version, remote_address, certificate_days_left, slowest_answer_ms } = connection;
  const facts = [
    ...(tls_version === null ? [] : [`HTTP/1.1 over ${tls_version}`]),
    ...(remote_address === null ? [] : [`address ${remote_address}`]),
    ...(certificate_days_left === null ? [] : [`certificate valid for ${certificate_days_left} more days`]),
    ...(slowest_answer_ms === null ? [] : [`slowest answer ${slowest_answer_ms} ms`]),
  ];
  return facts.length === 0 ? "No connection was established." : `${facts.join(", ")}.`;
}

/** An integrator's own setting, and none of Sealpost's configuration. */
const KEY_VARIABLE = "SEALPOST_API_KEY";

const FORWARD_HELP = `
Events are pulled from the API with the account's key, so neither a tunnel nor an endpoint is needed. Each is posted
once, exactly as a webhook is, with a signature that is valid now; the receiver verifies it with the account's signing
secret. Nothing is sent again: what the receiver refuses is printed, and the next one follows.

  export ${KEY_VARIABLE}=…        # a key with the scope analyses:read
  sealpost receiver forward --to http://localhost:3000/webhooks`;

function addForward(receiver: Command, context: ProcessContext): void {
  receiver
    .command("forward")
    .description("pull an account's events and post them to a receiver on this machine, until Ctrl-C")
    .requiredOption("--to <url>", "the receiver's URL on this machine")
    .option("--api <url>", "the API's URL, without /v1 (default: that of the service here)")
    .option(
      "--key-file <path>",
      `a file with the API key (/dev/stdin for standard input); default: ${KEY_VARIABLE}`,
    )
    .option("--from <cursor>", "where to begin: newest, oldest, or a cursor of the feed", "newest")
    .option("--unsafe-any-target", "post to other machines, too")
    .option("--json", "print events as JSON lines")
    .addHelpText("after", FORWARD_HELP)
    .action(async ({ to, api, keyFile, from, unsafeAnyTarget, json }) => {
      const target = readTarget(to, unsafeAnyTarget === true);
      const apiUrl = await readApiUrl(context, api);
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
  if (isAnyAllowed || namesThisMachine(url)) return url;
  throw new UsageError(
    `--to names ${url.hostname}, which is not this machine: events go to localhost, 127.0.0.0/8 or [::1]. ` +
      "With --unsafe-any-target they go anywhere.",
  );
}

/** Without /v1. */
async function readApiUrl({ env }: ProcessContext, given: string | undefined): Promise<string> {
  if (given === undefined) {
    const { publicUrl, host, port } = await commandConfigOf(env);
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
  const given =
    keyFile === undefined ? (env[KEY_VARIABLE] ?? "") : await readOptionFile("--key-file", keyFile);
  const key = given.trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new UsageError(
    key === ""
      ? `No API key: give --key-file, or set ${KEY_VARIABLE}.`
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
  const onRetry = (error: Error, afterMs: number) => {
    const reason = reasonOf(error.cause ?? error);
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
      // What was erased since is never delivered.
      if (item === undefined || isErased(item.body)) continue;
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
