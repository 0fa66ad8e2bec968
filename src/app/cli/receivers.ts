import { createReadStream } from "node:fs";
import { text } from "node:stream/consumers";
import type { Command } from "commander";
import { readConfig } from "../../base/config/config.ts";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { judgeTargetUrl } from "../../egress/rules/target-url.ts";
import type { ReceiverReport } from "../../receivers/receiver-check.ts";
import { receiverCheckBody } from "../../receivers/receivers-api.ts";
import { refusedTarget, targetRulesOf } from "../egress.ts";
import { readForwardTarget, runForwarding } from "../forwarding.ts";
import { httpUrl } from "../listening.ts";
import { createAnnounce, printResult, textTable, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { createReceiverChecking } from "../receiver-checking.ts";
import { commandConfigOf } from "../state-folder.ts";
import { runLocalReceiver } from "../webhook-receiver.ts";
import { collect, parseWholeNumber } from "./options.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./secrets.ts";

const CHECK_HELP = `
It sends 14 probes and up to 3 trials of the secret in parallel, within 20 seconds, each with the header
sealpost-probe: 1. Given two secrets, it says which of them the receiver accepts. A correct receiver accepts
the valid webhooks with a 2xx and refuses the forged and the outdated ones. Every probe's analysis has "example": true.
The exit code is 0 when the receiver is right and 1 when something is wrong.`;

export function addReceiverCheck(receiver: Command, context: ProcessContext): void {
  receiver
    .command("check")
    .description("check that a receiver accepts valid webhooks and refuses forgeries")
    .requiredOption("--url <url>", "the receiver's URL: a public https:// URL")
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--json", "print JSON, even on a terminal")
    .addHelpText("after", CHECK_HELP)
    .action(async (options) => {
      const config = await commandConfigOf(context.env);
      const judged = judgeTargetUrl(options.url, targetRulesOf(config));
      if (judged.verdict === "refuse") throw refusedTarget(judged, config);
      const secrets = await readSigningSecrets(context, options);
      const atMs = context.now();
      const report = await createReceiverChecking(config)({ url: judged.url, secrets, atMs });
      const value = receiverCheckBody(judged.href, atMs, report);
      printResult(context, options, value, reportText(judged.href, report));
      context.setExitCode(report.verdict === "right" ? 0 : 1);
    });
}

const verdictTexts: Readonly<Record<ReceiverReport["verdict"], string>> = {
  right: "is right: it accepts valid webhooks and refuses all others.",
  faulty: "is faulty: webhooks to it get lost or are sent again.",
  dangerous: "is dangerous: it accepts what it must refuse.",
};

function reportText(
  url: string,
  { verdict, faults, probes, acceptedSecrets, connection }: ReceiverReport,
): string {
  const list = faults.map(
    ({ severity, message, remedy }, index) =>
      `${index + 1}. ${severity}: ${message}\n   What to do: ${remedy}`,
  );
  const rows = probes.map((probe) => [
    probe.verdict.replace("_", " "),
    probe.sent,
    probe.expected,
    probe.got,
    `${probe.durationMs} ms`,
  ]);
  const parts = [
    `${url} ${verdictTexts[verdict]}`,
    ...list,
    ...secretsText(acceptedSecrets),
    textTable(["verdict", "sent", "expected", "got", "time"], rows),
    connectionText(connection),
  ];
  return parts.join("\n\n");
}

/** During a rotation. */
function secretsText({ current, previous }: ReceiverReport["acceptedSecrets"]): readonly string[] {
  if (current === null || previous === null) return [];
  if (current && previous) return ["It accepts both secrets."];
  if (current) return ["It accepts the current secret and no longer the previous one."];
  if (!previous) return ["It accepts neither of the two secrets alone."];
  return ["It accepts the previous secret only: give it the current one before the overlap ends."];
}

function connectionText(connection: ReceiverReport["connection"]): string {
  const { tlsVersion, remoteAddress, certificateDaysLeft, slowestAnswerMs } = connection;
  const facts = [
    ...(tlsVersion === null ? [] : [`HTTP/1.1 over ${tlsVersion}`]),
    ...(remoteAddress === null ? [] : [`address ${remoteAddress}`]),
    ...(certificateDaysLeft === null ? [] : [`certificate valid for ${certificateDaysLeft} more days`]),
    ...(slowestAnswerMs === null ? [] : [`slowest answer ${slowestAnswerMs} ms`]),
  ];
  return facts.length === 0 ? "No connection was established." : `${facts.join(", ")}.`;
}

/** An integrator's own setting, and none of Sealpost's configuration. */
const VARIABLE = "SEALPOST_API_KEY";
const FILE_BYTES_MAX = 1_024;

const FORWARD_HELP = `
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
    .option("--api <url>", "the API's URL, without /v1; without it, that of this configuration")
    .option("--key-file <path>", `a file of the API key (/dev/stdin for standard input); else ${VARIABLE}`)
    .option("--from <cursor>", "where to begin: newest, oldest, or a cursor of the feed", "newest")
    .option("--unsafe-any-target", "post to other machines, too")
    .option("--json", "print events as JSON lines")
    .addHelpText("after", FORWARD_HELP)
    .action(async (options) => {
      const to = readForwardTarget(options.to, options.unsafeAnyTarget === true);
      const apiUrl = options.api === undefined ? configuredApi(context) : readApiUrl(options.api);
      const apiKey = await readApiKey(context, options.keyFile);
      const from = options.from === "oldest" ? undefined : options.from;
      await runForwarding(context, { apiUrl, apiKey, to, from }, createAnnounce(context, options));
    });
}

function configuredApi({ env }: ProcessContext): string {
  const { publicUrl, host, port } = readConfig(env);
  return publicUrl ?? httpUrl(host, port);
}

function readApiUrl(given: string): string {
  const url = URL.parse(given);
  if (url !== null && /^https?:$/.test(url.protocol) && url.search === "" && url.username === "") {
    return url.href.replace(/\/+(?:v1\/?)?$/, "");
  }
  throw new UsageError("--api must be an http:// or https:// URL, such as https://api.example.com.");
}

/** @throws UsageError without one, and for a file that cannot be read */
async function readApiKey({ env }: ProcessContext, keyFile: string | undefined): Promise<string> {
  const key = (keyFile === undefined ? (env[VARIABLE] ?? "") : await readKeyFile(keyFile)).trim();
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  throw new UsageError(
    key === ""
      ? `No API key: give --key-file, or set ${VARIABLE}.`
      : "The API key holds characters that no key has.",
  );
}

async function readKeyFile(path: string): Promise<string> {
  try {
    return await text(createReadStream(path, { end: FILE_BYTES_MAX }));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`The file that --key-file names cannot be read (${code}).`, { cause: error });
  }
}

const LISTEN_HELP = `
It answers 204 to valid webhooks and 400 to everything else, and prints why.

Webhooks only go to public https:// addresses, so put a tunnel or a proxy in front of it and set its public
address as your endpoint:

  sealpost receiver listen --port 4000 --secret-file secret.txt

A Sealpost on the same machine reaches it directly when it trusts the certificate and allows the target:

  sealpost receiver listen --port 4000 --secret-file secret.txt --https --ca-file receiver-ca.pem
  export TARGET_CA_FILE=receiver-ca.pem UNSAFE_ALLOWED_TARGETS=localhost:4000
  sealpost start
  sealpost endpoint set --account ID --url https://localhost:4000/webhooks`;

export function addReceiverListen(receiver: Command, context: ProcessContext): void {
  receiver
    .command("listen")
    .description("run a receiver that verifies and prints webhooks, until Ctrl-C")
    .requiredOption("--port <number>", "port to listen on; 0 for any free port", parseWholeNumber(0, 65_535))
    .option("--secret <secret>", SECRET_OPTION, collect)
    .option("--secret-file <path>", SECRET_FILE_OPTION)
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--tolerance <seconds>", "maximum age of a webhook", parseWholeNumber(1, DAY_SECONDS), 300)
    .option("--https", "use HTTPS, with a certificate for localhost")
    .option(
      "--ca-file <path>",
      "with --https: where senders find the certificate to trust (PEM); kept, with <path>.key, for the next start",
    )
    .option("--json", "print events as JSON lines")
    .addHelpText("after", LISTEN_HELP)
    .action(async (options) => {
      if (options.caFile !== undefined && !options.https) throw new UsageError("--ca-file needs --https.");
      const secrets = await readSigningSecrets(context, options);
      await runLocalReceiver(
        context,
        {
          host: options.host,
          port: options.port,
          secrets,
          toleranceSeconds: options.tolerance,
          isHttps: options.https === true,
          caFile: options.caFile ?? null,
        },
        createAnnounce(context, options),
      );
    });
}
