import {
  type DeliveryInbox,
  readChallenge,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
  WebhookVerificationError,
} from "../../../src/signing/web.ts";

export function createReceiver(options: {
  secret: string | undefined;
  inbox: DeliveryInbox;
  store: (event: WebhookEvent) => Promise<void>;
}): (request: Request) => Promise<Response> {
  return async (request) => {
    try {
      const header = request.headers.get(SIGNATURE_HEADER);
      const input = { rawBody: await request.arrayBuffer(), header, secret: options.secret };
      const challenge = await readChallenge(input);
      if (challenge !== null) return new Response(challenge);
      const event = await verifyWebhook(input);
      // A test event is answered like any other, but is nobody's result.
      if (event.data.example !== true) {
        await options.inbox.acceptOnce(event.id, () => options.store(event));
      }
      return new Response(null, { status: 204 });
    } catch (error) {
      const status = error instanceof WebhookVerificationError ? error.statusCode : 500;
      return new Response(null, { status });
    }
  };
}
