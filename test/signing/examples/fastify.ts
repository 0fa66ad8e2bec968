import type { FastifyInstance } from "fastify";
import {
  type DeliveryInbox,
  readChallenge,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
} from "../../../src/signing/index.ts";

/** A plugin, so that the rest of the application keeps its body parsers. */
export async function receiver(
  app: FastifyInstance,
  options: {
    secret: string | undefined;
    inbox: DeliveryInbox;
    store: (event: WebhookEvent) => Promise<void>;
  },
): Promise<void> {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser<Buffer>("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));

  // An analysis can be 1 MiB, fastify's default limit, and the event is slightly larger.
  app.post<{ Body: Buffer }>("/webhooks", { bodyLimit: 2 * 1024 * 1024 }, async (request, reply) => {
    // Its errors carry the status to answer with.
    const header = request.headers[SIGNATURE_HEADER];
    const input = { rawBody: request.body, header, secret: options.secret };
    const challenge = readChallenge(input);
    if (challenge !== null) return reply.send(challenge);
    const event = verifyWebhook(input);
    // A test event is answered like any other, but is nobody's result.
    if (event.data.example !== true) {
      await options.inbox.acceptOnce(event.id, () => options.store(event));
    }
    return reply.code(204).send();
  });
}
