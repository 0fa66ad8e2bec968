import express, { type Router } from "express";
import {
  type DeliveryInbox,
  SIGNATURE_HEADER,
  verifyWebhook,
  type WebhookEvent,
} from "../../../src/signing/index.ts";

/** Mount it before `app.use(express.json())`: what that has parsed can no longer be verified. */
export function createReceiver(options: {
  secret: string | undefined;
  inbox: DeliveryInbox;
  store: (event: WebhookEvent) => Promise<void>;
}): Router {
  const router = express.Router();
  // An analysis may be 1 MiB; express.raw stops at 100 KB unless it is told.
  router.post("/webhooks", express.raw({ type: () => true, limit: "2mb" }), async (request, response) => {
    // What it throws carries the status to answer.
    const event = verifyWebhook({
      rawBody: request.body,
      header: request.headers[SIGNATURE_HEADER],
      secret: options.secret,
    });
    await options.inbox.acceptOnce(event.id, () => options.store(event));
    response.sendStatus(204);
  });
  return router;
}
