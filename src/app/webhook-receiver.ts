import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import {
  createMemoryInbox,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
  WebhookVerificationError,
} from "../signing/index.ts";
import { cannotListen } from "./listening.ts";
import { issueLocalCertificate } from "./local-certificate.ts";
import type { Announce } from "./output.ts";
import type { ProcessContext } from "./process-context.ts";

/** More than any event has. */
const BODY_BYTES_MAX = 16 * 1024 * 1024;

/** A POST that was read and verified. */
export type Arrival = {
  readonly path: string;
  /** The host name of the request, without the port. */
  readonly hostname: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
  /** Null: the signature or its timestamp is not valid. */
  readonly event: WebhookEvent | null;
  /** Why verification failed; null when it did not. */
  readonly rejection: WebhookVerificationError | null;
};

export type WebhookReceiverOptions = {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Null: plain HTTP, for a proxy or a tunnel in front. */
  readonly tls: { readonly keyPem: string; readonly certPem: string } | null;
  readonly secrets: readonly string[];
  readonly toleranceSeconds: number;
  /** Unix time in milliseconds. */
  readonly now: () => number;
  /** Returns the status to answer with. */
  readonly onArrival: (arrival: Arrival) => number | Promise<number>;
};

export type WebhookReceiver = { readonly port: number; close(): Promise<void> };

/**
 * A receiver of webhooks that verifies them with the library that customers use.
 * @throws UsageError when it cannot listen on that address
 */
export async function startWebhookReceiver(options: WebhookReceiverOptions): Promise<WebhookReceiver> {
  const { host, port, tls } = options;
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    // A client that disconnects in the middle of its request gets no answer.
    receive(request, response, options).catch(() => response.destroy());
  };
  const server =
    tls === null
      ? createServer(listener)
      : createHttpsServer({ key: tls.keyPem, cert: tls.certPem }, listener);
  try {
    server.listen(port, host);
    await once(server, "listening");
  } catch (error) {
    throw cannotListen("The receiver", `${host}, port ${port}`, error);
  }
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function receive(
  request: IncomingMessage,
  response: ServerResponse,
  options: WebhookReceiverOptions,
): Promise<void> {
  if (request.method !== "POST") {
    response.writeHead(405, { allow: "POST", connection: "close" }).end();
    return;
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) {
      response.writeHead(413, { connection: "close" }).end();
      return;
    }
    chunks.push(chunk);
  }
  const status = await options.onArrival({
    path: request.url ?? "/",
    hostname: (request.headers.host ?? "").replace(/:\d+$/, ""),
    headers: request.headers,
    ...verify(Buffer.concat(chunks), request.headers[SIGNATURE_HEADER], options),
  });
  response.writeHead(status).end();
}

function verify(
  body: Buffer,
  header: string | string[] | undefined,
  { secrets, toleranceSeconds, now }: WebhookReceiverOptions,
): Pick<Arrival, "body" | "event" | "rejection"> {
  try {
    const event = verifyWebhook({ rawBody: body, header, secrets, toleranceSeconds, now: now() / 1_000 });
    return { body, event, rejection: null };
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    return { body, event: null, rejection: error };
  }
}

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
