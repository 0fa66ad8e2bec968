import {
  type DeliveryInbox,
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
      const event = await verifyWebhook({
        rawBody: await request.arrayBuffer(),
        header: request.headers.get(SIGNATURE_HEADER),
        secret: options.secret,
      });
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
