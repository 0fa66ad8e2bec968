import { once } from "node:events";
import type { Command } from "commander";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { createMemoryInbox } from "../../signing/index.ts";
import { httpUrl } from "../listening.ts";
import { issueLocalCertificate } from "../local-certificate.ts";
import { type Announce, createAnnounce, UsageError } from "../output.ts";
import type { ProcessContext } from "../process-context.ts";
import { type Arrival, startWebhookReceiver } from "../webhook-receiver.ts";
import { collect, parseWholeNumber } from "./options.ts";
import { readSigningSecrets, SECRET_FILE_OPTION, SECRET_OPTION } from "./secrets.ts";

const HELP = `
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
    .addHelpText("after", HELP)
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
  return async ({ path, headers, body, event, rejection }) => {
    const received_at = new Date(now()).toISOString();
    const status = rejection?.statusCode ?? 204;
    const is_repeat = event !== null && (await inbox.acceptOnce(event.id, () => undefined)) === "duplicate";
    const is_probe = headers["sealpost-probe"] !== undefined;
    const notes = [
      ...(is_repeat ? ["a repeated delivery"] : []),
      ...(is_probe ? ["a probe of the receiver check"] : []),
      ...(event?.data.example === true ? ["an example"] : []),
    ];
    const note = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
    const what =
      event === null
        ? `rejected${note}: ${rejection?.message ?? ""}`
        : `${event.event}, delivery ${printable(event.id)}${note}\n${printable(body.toString())}`;
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
