import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { readChallenge, SIGNATURE_HEADER, verifyWebhook } from "../../../src/signing/index.ts";

const port = Number(process.env.PORT ?? 3000);
const server = createServer(async (request, response) => {
  try {
    const input = {
      rawBody: await buffer(request),
      header: request.headers[SIGNATURE_HEADER],
      secret: process.env.SIGNING_SECRET,
    };
    const challenge = readChallenge(input);
    if (challenge !== null) {
      response.writeHead(200).end(challenge);
      return;
    }
    const event = verifyWebhook(input);
    console.log("verified", event.id, event.event, event.data.id);
    response.writeHead(204).end();
  } catch (error) {
    console.log("refused", String(error));
    response.writeHead(400).end();
  }
});
server.listen(port, () => console.log(`listening on http://localhost:${port}`));
