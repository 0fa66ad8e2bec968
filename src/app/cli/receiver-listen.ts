import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Command } from "commander";
import type { Pool } from "pg";
import { findFirstAccount, findShownAccount } from "../../accounts/accounts-sql.ts";
import type { Config } from "../../base/config/config.ts";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { findEndpoint } from "../../delivery/endpoint-sql.ts";
import { findSigningSecrets } from "../../delivery/signing-secrets-sql.ts";
import { exampleAnalysis } from "../../delivery/webhook.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import { publishExample } from "../../publish/publish-call-sql.ts";
import { createMemoryInbox } from "../../signing/index.ts";
import { changeAudited } from "../create-api-key.ts";
import { loadSecretsKey, withDatabase } from "../database.ts";
import { targetRulesOf } from "../egress.ts";
import { httpUrl } from "../listening.ts";
import { issueLocalCertificate } from "../local-certificate.ts";
import { certificateFileOf } from "../offered-receiver.ts";
import { type Announce, createAnnounce, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { offeredPortOf } from "../state-folder.ts";
import { type Arrival, startWebhookReceiver } from "../webhook-receiver.ts";
import { setEndpointAudited } from "./endpoint.ts";
import { collect, parseId, parseWholeNumber } from "./options.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./secrets.ts";

const TRY_HELP = `
It needs an \`npm start\` that runs here in development with its own database, and neither settings nor a restart: it
listens where that one allows it to, the one private address there is, with a certificate that it trusts. An account
without an endpoint gets this one. An example is published, so that the first webhook comes at once; more come whenever
you publish.`;

const NOT_OFFERED =
  "No `npm start` offers this receiver here: it does in development, with its own database (DATABASE_URL unset), " +
  "unless TARGET_CA_FILE or EGRESS_PROXY_URL is set. Elsewhere, use `sealpost receiver listen`.";

export function addTry(receiver: Command, context: ProcessContext): void {
  receiver
    .command("try")
    .description("receive an account's webhooks from the `npm start` that runs here: verify and print them")
    .option("--account <id>", "id of the account (default: the oldest)", parseId)
    .option("--json", "print events as JSON lines")
    .addHelpText("after", TRY_HELP)
    .action((options) =>
      withDatabase(context, async (pool, config) => {
        const port = await offeredPortOf(config);
        if (port === null) throw new UsageError(NOT_OFFERED);
        const accountId = options.account ?? (await findFirstAccount(pool))?.id ?? "";
        const account = accountId === "" ? null : await findShownAccount(pool, accountId);
        if (account === null)
          throw new UsageError("There is no such account; `sealpost account list` lists all accounts.");
        const secretsKey = await loadSecretsKey(pool, config);
        const found = await findSigningSecrets(pool, accountId, secretsKey);

        const announce = createAnnounce(context, options);
        const { now } = context;
        const shutdown = context.createShutdownSignal();
        const receiver = await startWebhookReceiver({
          host: "127.0.0.1",
          port,
          tls: await issueLocalCertificate("localhost", certificateFileOf(config), now, announce),
          secrets: found.map(({ secret }) => secret),
          toleranceSeconds: TOLERANCE_SECONDS,
          now,
          onArrival: createAnnounceArrival(announce, now),
        });
        try {
          const url = `https://localhost:${port}/webhooks`;
          const endpoint = await takeEndpoint(pool, config, accountId, url);
          const listening = `Listening at ${url} and verifying webhooks of “${account.accountName}”.`;
          const text = `${listening} Press Ctrl-C to stop.\n${endpointText(accountId, endpoint, url)}`;
          announce("listening", { url, account_id: accountId, endpoint }, text);
          await sendExample(pool, accountId, endpoint === url ? null : url);
          if (!shutdown.aborted) await once(shutdown, "abort");
        } finally {
          await receiver.close();
        }
      }),
    );
}

/** Its own one stays, unless this service would send nothing there. Returns the endpoint as it is then. */
async function takeEndpoint(pool: Pool, config: Config, accountId: string, url: string): Promise<string> {
  const { url: current = null } = (await findEndpoint(pool, accountId)) ?? {};
  const isUsed = current !== null && judgeTargetUrl(current, targetRulesOf(config)).verdict === "allow";
  return isUsed ? current : (await setEndpointAudited(pool, config, accountId, url)).url;
}

function endpointText(accountId: string, endpoint: string, url: string): string {
  if (endpoint === url)
    return "It is the account's endpoint: after an example, what you publish arrives here.";
  const set = `npm run -s sealpost -- endpoint set --account ${accountId} --url ${url}`;
  return `The account's endpoint stays ${endpoint}: only an example arrives here. For everything:\n  ${set}`;
}

/** `webhookUrl` null: to the endpoint. */
async function sendExample(pool: Pool, accountId: string, webhookUrl: string | null): Promise<void> {
  const event = "analysis.succeeded";
  const analysis_id = `example-${randomUUID()}`;
  const analysis = exampleAnalysis(event, analysis_id);
  await changeAudited(pool, "webhooks.endpoint.test", async (tx) => {
    const [delivery_id] = await publishExample(tx, { accountId, analysis, webhookUrl });
    return { done: null, accountId, details: { event, analysis_id, delivery_id } };
  });
}

/** Of a webhook, as the library's. */
const TOLERANCE_SECONDS = 300;

const LISTEN_HELP = `
It answers 204 to valid webhooks, 200 and its text to a challenge, and 400 to everything else, and prints why.

Webhooks only go to public https:// addresses, so put a tunnel or a proxy in front of it and set its public
address as your endpoint:

  sealpost receiver listen --port 4000 --secret-file secret.txt

A Sealpost on the same machine reaches it directly when it trusts the certificate and allows the target:

  sealpost receiver listen --port 4000 --secret-file secret.txt --https --ca-file receiver-ca.pem
  export TARGET_CA_FILE=receiver-ca.pem UNSAFE_ALLOWED_TARGETS=localhost:4000
  sealpost start
  sealpost endpoint set --account ID --url https://localhost:4000/webhooks`;

export function addListen(receiver: Command, context: ProcessContext): void {
  receiver
    .command("listen")
    .description("run a receiver that verifies and prints webhooks, until Ctrl-C")
    .requiredOption("--port <number>", "port to listen on; 0 for any free port", parseWholeNumber(0, 65_535))
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option(
      "--tolerance <seconds>",
      "maximum age of a webhook",
      parseWholeNumber(1, DAY_SECONDS),
      TOLERANCE_SECONDS,
    )
    .option("--https", "use HTTPS, with a certificate for localhost")
    .option(
      "--ca-file <path>",
      "with --https: where senders find the certificate to trust (PEM); kept, with <path>.key, for the next start",
    )
    .option("--json", "print events as JSON lines")
    .addHelpText("after", LISTEN_HELP)
    .action(async (options) => {
      const { host, port, https: isHttps = false, caFile = null, tolerance: toleranceSeconds } = options;
      if (caFile !== null && !isHttps) throw new UsageError("--ca-file needs --https.");
      const secrets = await readSigningSecrets(context, options);
      const announce = createAnnounce(context, options);
      const { now } = context;
      const shutdown = context.createShutdownSignal();
      const tls = isHttps ? await issueLocalCertificate(host, caFile, now, announce) : null;
      const onArrival = createAnnounceArrival(announce, now);
      const listening = { host, port, tls, secrets, toleranceSeconds, now, onArrival };
      const receiver = await startWebhookReceiver(listening);
      // The name in the help's UNSAFE_ALLOWED_TARGETS.
      const shownHost = isHttps && host === "127.0.0.1" ? "localhost" : host;
      const url = `${httpUrl(shownHost, receiver.port).replace("http:", isHttps ? "https:" : "http:")}/`;
      announce("listening", { url }, `Listening at ${url} and verifying webhooks. Press Ctrl-C to stop.`);
      if (!shutdown.aborted) await once(shutdown, "abort");
      await receiver.close();
    });
}

/** Handles each event once, as a receiver should, by announcing it. Returns the status to answer with. */
function createAnnounceArrival(announce: Announce, now: () => number): (arrival: Arrival) => Promise<number> {
  const inbox = createMemoryInbox();
  return async ({ path, headers, body, event, isChallenge, rejection }) => {
    const received_at = new Date(now()).toISOString();
    const status = isChallenge ? 200 : (rejection?.statusCode ?? 204);
    const is_repeat = event !== null && (await inbox.acceptOnce(event.id, () => undefined)) === "duplicate";
    const is_probe = headers["sealpost-probe"] !== undefined;
    const notes = [
      ...(is_repeat ? ["a repeated delivery"] : []),
      ...(is_probe ? ["a probe of the receiver check"] : []),
      ...(event?.data.example === true ? ["an example"] : []),
    ];
    const note = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
    const what = isChallenge
      ? `a challenge, answered${note}`
      : event === null
        ? `rejected${note}: ${rejection?.message ?? ""}`
        : `verified ${event.event}, delivery ${printable(event.id)}${note}\n${printable(body.toString())}`;
    const judged = { is_valid: rejection === null, reason: rejection?.code ?? null, is_repeat, is_probe };
    const fields = { received_at, path, status, ...judged, webhook: event };
    announce("arrived", fields, `${received_at.slice(11, 23)}  POST ${printable(path)} → ${status}  ${what}`);
    return status;
  };
}

const SHOWN_CHARACTERS_MAX = 2_000;

/** Without control sequences, which a terminal would obey. */
function printable(text: string): string {
  const isLong = text.length > SHOWN_CHARACTERS_MAX;
  const shown = isLong ? `${text.slice(0, SHOWN_CHARACTERS_MAX)}…` : text;
  return shown.replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}
