import { createServer, type Server } from "node:http";
import {
  type DeliveryInbox,
  readChallenge,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
  WebhookVerificationError,
} from "../../../src/signing/index.ts";

const BODY_BYTES_MAX = 2 * 1024 * 1024;

export function createReceiver(options: {
  secret: string | undefined;
  inbox: DeliveryInbox;
  /** Puts the event where your worker finds it: a table, a queue. */
  store: (event: WebhookEvent) => Promise<void>;
}): Server {
  return createServer(async (request, response) => {
    try {
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of request) {
        bytes += chunk.length;
        if (bytes > BODY_BYTES_MAX) return response.writeHead(413, { connection: "close" }).end();
        chunks.push(chunk);
      }
      const header = request.headers[SIGNATURE_HEADER];
      const input = { rawBody: Buffer.concat(chunks), header, secret: options.secret };
      const challenge = readChallenge(input);
      if (challenge !== null) return response.writeHead(200).end(challenge);
      const event = verifyWebhook(input);
      // A test event is answered like any other, but is nobody's result.
      if (event.data.example !== true) {
        await options.inbox.acceptOnce(event.id, () => options.store(event));
      }
      return response.writeHead(204).end();
    } catch (error) {
      return response.writeHead(error instanceof WebhookVerificationError ? error.statusCode : 500).end();
    }
  });
}
