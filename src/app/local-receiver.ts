import { once } from "node:events";
import { createMemoryInbox } from "../signing/index.ts";
import { issueLocalCertificate } from "./local-certificate.ts";
import type { Announce } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";
import { type Arrival, startWebhookReceiver, type WebhookReceiverOptions } from "./webhook-receiver.ts";

const SHOWN_CHARACTERS_MAX = 2_000;

export type LocalReceiverOptions = Pick<
  WebhookReceiverOptions,
  "host" | "port" | "secrets" | "toleranceSeconds"
> & {
  readonly isHttps: boolean;
  /** With HTTPS: where the authority's certificate is, or is written. Null: nowhere. */
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
    tls: isHttps ? await issueLocalCertificate(host, caFile, now, announce) : null,
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
