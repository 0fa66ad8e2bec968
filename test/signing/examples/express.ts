import express, { type NextFunction, type Request, type Response, type Router } from "express";
import {
  type DeliveryInbox,
  readChallenge,
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
    const header = request.headers[SIGNATURE_HEADER];
    const input = { rawBody: request.body, header, secret: options.secret };
    const challenge = readChallenge(input);
    if (challenge !== null) {
      response.type("text").send(challenge);
      return;
    }
    const event = verifyWebhook(input);
    // A test event is answered like any other, but is nobody's result.
    if (event.data.example !== true) {
      await options.inbox.acceptOnce(event.id, () => options.store(event));
    }
    response.sendStatus(204);
  });
  // Also for what is too large. Left to itself, express answers with the stack and prints it.
  router.use("/webhooks", (error: unknown, _request: Request, response: Response, _next: NextFunction) => {
    const { statusCode = 500 } = error as { statusCode?: number };
    response.sendStatus(statusCode);
  });
  return router;
}
