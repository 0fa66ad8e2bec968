import express, { type Router } from "express";
import {
  type DeliveryInbox,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
} from "../../../src/signing/index.ts";

/** Mount it before `app.use(express.json())`: a parsed body cannot be verified. */
export function createReceiver(options: {
  secret: string | undefined;
  inbox: DeliveryInbox;
  store: (event: WebhookEvent) => Promise<void>;
}): Router {
  const router = express.Router();
  // An analysis can be 1 MiB; the default limit of express.raw is 100 KB.
  router.post("/webhooks", express.raw({ type: () => true, limit: "2mb" }), async (request, response) => {
    // Its errors carry the status to answer with.
    const event = verifyWebhook({
      rawBody: request.body,
      header: request.headers[SIGNATURE_HEADER],
      secret: options.secret,
    });
    // A test event is answered like any other, but is nobody's result.
    if (event.data.example !== true) {
      await options.inbox.acceptOnce(event.id, () => options.store(event));
    }
    response.sendStatus(204);
  });
  return router;
}
