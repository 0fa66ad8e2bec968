import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { DAY_MS } from "../model/time.ts";
import { createMemoryInbox } from "../signing/index.ts";
import type { Announce } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";
import { UsageError } from "./usage-error.ts";
import { type Arrival, startWebhookReceiver, type WebhookReceiverOptions } from "./webhook-receiver.ts";

const SHOWN_CHARACTERS_MAX = 2_000;
const VALIDITY_MS = 365 * DAY_MS;

export type LocalReceiverOptions = Pick<
  WebhookReceiverOptions,
  "host" | "port" | "secrets" | "toleranceSeconds"
> & {
  readonly isHttps: boolean;
  /** With HTTPS: where to write the authority's certificate. Null: nowhere. */
  readonly caFile: string | null;
};

/** Runs a receiver until shutdown that announces every webhook it gets. */
export async function runLocalReceiver(
  { createShutdownSignal, now }: ProcessContext,
  options: LocalReceiverOptions,
  announce: Announce,
): Promise<void> {
  const { host, isHttps, caFile } = options;
  const shutdown = createShutdownSignal();
  const receiver = await startWebhookReceiver({
    ...options,
    tls: isHttps ? await issueCertificate(host, caFile, now) : null,
    now,
    onArrival: createAnnounceArrival(announce, now),
  });
  // The name in its certificate, and in the help's UNSAFE_ALLOWED_TARGETS.
  const urlHost = isHttps && host === "127.0.0.1" ? "localhost" : host.includes(":") ? `[${host}]` : host;
  const url = `${isHttps ? "https" : "http"}://${urlHost}:${receiver.port}/`;
  announce("listening", { url }, `Listening at ${url} and verifying webhooks. Press Ctrl-C to stop.`);
  if (!shutdown.aborted) await once(shutdown, "abort");
  await receiver.close();
}

async function issueCertificate(
  host: string,
  caFile: string | null,
  now: () => number,
): Promise<WebhookReceiverOptions["tls"]> {
  // Imported here, so that other commands do not spend time and memory on it.
  const { createCertificateAuthority } = await import("./certificate-authority.ts");
  const validity = { notBefore: new Date(now() - DAY_MS), notAfter: new Date(now() + VALIDITY_MS) };
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
    throw new UsageError(`The file of --ca-file cannot be written (${code}).`, { cause: error });
  }
}

/** Handles each event once, as a receiver should; handling it means announcing it. */
function createAnnounceArrival(announce: Announce, now: () => number): WebhookReceiverOptions["onArrival"] {
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
    announce("arrived", fields, arrivalText(arrival, fields));
    return status;
  };
}

function arrivalText(
  { path, event, rejection, body }: Arrival,
  {
    received_at,
    status,
    is_repeat,
    is_probe,
  }: Record<"received_at" | "status" | "is_repeat" | "is_probe", unknown>,
): string {
  const notes = [
    ...(is_repeat ? ["a repeated delivery"] : []),
    ...(is_probe ? ["a probe of the receiver check"] : []),
    ...(event?.data.example === true ? ["an example"] : []),
  ];
  const note = notes.length === 0 ? "" : ` (${notes.join(", ")})`;
  const head = `${String(received_at).slice(11, 23)}  POST ${printable(path)} → ${status}`;
  if (event === null) return `${head}  rejected${note}: ${rejection?.message ?? ""}`;
  return `${head}  ${event.event}, delivery ${printable(event.id)}${note}\n${printable(body.toString())}`;
}

/** Without control sequences, which a terminal would obey. */
function printable(text: string): string {
  const isLong = text.length > SHOWN_CHARACTERS_MAX;
  const shown = isLong ? `${text.slice(0, SHOWN_CHARACTERS_MAX)}…` : text;
  return shown.replace(/[^\P{Cc}\n\t]/gu, "\ufffd");
}
