import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type { Command } from "@commander-js/extra-typings";
import { type Announce, createAnnounce } from "../app/announcements.ts";
import type { ProcessContext } from "../app/process-context.ts";
import { UsageError } from "../app/usage-error.ts";
import { type Arrival, startWebhookReceiver, type WebhookReceiverOptions } from "../app/webhook-receiver.ts";
import { DAY_MS, DAY_SECONDS } from "../model/time.ts";
import { createMemoryInbox } from "../signing/index.ts";
import { collect, parseWholeNumber } from "./options.ts";
import { refuseBadSecrets } from "./receiver-secrets.ts";

const SHOWN_CHARACTERS = 2_000;
const YEAR_MS = 365 * DAY_MS;
const MORE_HELP = `
It answers 204 to what is genuine and fresh, 400 to everything else, and says why.

Webhooks go to public https:// addresses only. So put a tunnel or a proxy in front of this, and set its public
address as your endpoint:

  sealpost receiver listen --port 4000 --secret whsec_…

A Sealpost on this machine reaches it without a tunnel when it is told to trust and to allow it:

  sealpost receiver listen --port 4000 --secret whsec_… --https --ca-file /tmp/receiver-ca.pem
  export TARGET_CA_FILE=/tmp/receiver-ca.pem UNSAFE_ALLOWED_TARGETS=localhost:4000
  sealpost start
  sealpost endpoint set --account ID --url https://localhost:4000/webhooks`;

export function addReceiverListen(receiver: Command, context: ProcessContext): void {
  receiver
    .command("listen")
    .description("be a receiver: verify and show what arrives, until Ctrl-C")
    .requiredOption("--port <number>", "to listen on; 0 for any free one", parseWholeNumber(0, 65_535))
    .requiredOption(
      "--secret <secret>",
      "the signing secret; again for the old one during a rotation",
      collect,
    )
    .option("--host <address>", "to listen on", "127.0.0.1")
    .option("--tolerance <seconds>", "how old a webhook may be", parseWholeNumber(1, DAY_SECONDS), 300)
    .option("--https", "with a certificate of its own for localhost, made now")
    .option("--ca-file <path>", "with --https: where to write what a sender has to trust (PEM)")
    .option("--json", "say what arrives in JSON, a line each")
    .addHelpText("after", MORE_HELP)
    .action(async (options) => {
      const { now } = context;
      const asked = context.untilAskedToEnd();
      const announce = createAnnounce(context, options);
      if (options.caFile !== undefined && !options.https) throw new UsageError("--ca-file is for --https.");
      refuseBadSecrets(options.secret);
      const { close, port } = await startWebhookReceiver({
        host: options.host,
        port: options.port,
        tls: options.https ? await issueCertificate(options.host, options.caFile ?? null, now) : null,
        secrets: options.secret,
        toleranceSeconds: options.tolerance,
        now,
        answer: createAnswer(announce, now),
      });
      // By the name that its certificate is for and that the help allows.
      const host = options.https && options.host === "127.0.0.1" ? "localhost" : hostInUrl(options.host);
      const url = `${options.https ? "https" : "http"}://${host}:${port}/`;
      announce("listening", { url }, `Listening at ${url} and verifying what arrives. End with Ctrl-C.`);
      if (!asked.aborted) await once(asked, "abort");
      await close();
    });
}

async function issueCertificate(
  host: string,
  caFile: string | null,
  now: () => number,
): Promise<WebhookReceiverOptions["tls"]> {
  // Loaded here, so that no other command pays for making certificates in time and memory.
  const { createCertificateAuthority } = await import("../app/certificate-authority.ts");
  const validity = { notBefore: new Date(now() - DAY_MS), notAfter: new Date(now() + YEAR_MS) };
  const authority = await createCertificateAuthority("Sealpost local receiver", validity);
  const names = [...new Set(["localhost", "127.0.0.1", "::1", host])];
  if (caFile !== null) await writeCertificate(caFile, authority.caPem);
  return await authority.issue({ names, ...validity });
}

async function writeCertificate(path: string, pem: string): Promise<void> {
  try {
    await writeFile(path, pem);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(`The file that --ca-file names cannot be written (${code}).`, { cause: error });
  }
}

/** Handles each event once, as a receiver should; here that is to say so. */
function createAnswer(announce: Announce, now: () => number): WebhookReceiverOptions["answer"] {
  const inbox = createMemoryInbox();
  return async (arrival) => {
    const { event, rejection } = arrival;
    const isRepeat = event !== null && (await inbox.acceptOnce(event.id, () => undefined)) === "duplicate";
    const status = rejection?.statusCode ?? 204;
    const fields = {
      received_at: new Date(now()).toISOString(),
      path: arrival.path,
      status,
      is_valid: rejection === null,
      reason: rejection?.code ?? null,
      is_repeat: isRepeat,
      is_probe: arrival.headers["sealpost-probe"] !== undefined,
      webhook: event,
    };
    announce("arrived", fields, inWords(arrival, fields));
    return status;
  };
}

function inWords(
  { path, event, rejection, body }: Arrival,
  {
    received_at,
    status,
    is_repeat,
    is_probe,
  }: Record<"received_at" | "status" | "is_repeat" | "is_probe", unknown>,
): string {
  const notes = [
    ...(is_repeat ? ["the same delivery again"] : []),
    ...(is_probe ? ["a probe of the receiver check"] : []),
    ...(event?.data.example === true ? ["an example"] : []),
  ];
  const note = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
  const head = `${String(received_at).slice(11, 23)}  POST ${printable(path)} → ${status}`;
  if (event === null) return `${head}  refused${note}: ${rejection?.message ?? ""}`;
  return `${head}  ${event.event}, delivery ${printable(event.id)}${note}\n${printable(body.toString())}`;
}

/** What came from outside could hold sequences that a terminal obeys. */
function printable(text: string): string {
  const shown = text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
  return shown.replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}

function hostInUrl(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
