import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import {
  readChallenge,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
  WebhookVerificationError,
} from "../signing/index.ts";
import { cannotListen } from "./listening.ts";
import type { LocalCertificate } from "./local-certificate.ts";

/** More than any event has. */
const BODY_BYTES_MAX = 16 * 1024 * 1024;

/** A POST that was read and verified. */
export type Arrival = {
  readonly path: string;
  /** The host name of the request, without the port. */
  readonly hostname: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
  /** Null: the signature or its timestamp is not valid, or it is a challenge. */
  readonly event: WebhookEvent | null;
  /** It is answered with its text. */
  readonly isChallenge: boolean;
  /** Why verification failed; null when it did not. */
  readonly rejection: WebhookVerificationError | null;
};

export type WebhookReceiverOptions = {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Null: plain HTTP, for a proxy or a tunnel in front. */
  readonly tls: LocalCertificate | null;
  readonly secrets: readonly string[];
  readonly toleranceSeconds: number;
  /** Unix time in milliseconds. */
  readonly now: () => number;
  /** Returns the status to answer with; a challenge is answered 200. */
  readonly onArrival: (arrival: Arrival) => number | Promise<number>;
};

/**
 * A receiver of webhooks that verifies them with the library that customers use.
 * @throws UsageError when it cannot listen on that address
 */
export async function startWebhookReceiver(options: WebhookReceiverOptions) {
  const { host, port, tls } = options;
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    // A client that disconnects in the middle of its request gets no answer.
    receive(request, response, options).catch(() => response.destroy());
  };
  const server = tls === null ? createServer(listener) : createHttpsServer(tls, listener);
  server.listen(port, host);
  await once(server, "listening").catch(cannotListen("The receiver", `${host}, port ${port}`));
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      const closed = server[Symbol.asyncDispose]();
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
  const { challenge, ...verified } = verify(
    Buffer.concat(chunks),
    request.headers[SIGNATURE_HEADER],
    options,
  );
  const isChallenge = challenge !== null;
  const status = await options.onArrival({
    path: request.url ?? "/",
    hostname: (request.headers.host ?? "").replace(/:\d+$/, ""),
    headers: request.headers,
    isChallenge,
    ...verified,
  });
  response.writeHead(isChallenge ? 200 : status).end(challenge ?? "");
}

function verify(
  body: Buffer,
  header: string | string[] | undefined,
  { secrets, toleranceSeconds, now }: WebhookReceiverOptions,
): Pick<Arrival, "body" | "event" | "rejection"> & { readonly challenge: string | null } {
  const input = { rawBody: body, header, secrets, toleranceSeconds, now: now() / 1_000 };
  try {
    const challenge = readChallenge(input);
    return { body, challenge, event: challenge === null ? verifyWebhook(input) : null, rejection: null };
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    return { body, challenge: null, event: null, rejection: error };
  }
}
