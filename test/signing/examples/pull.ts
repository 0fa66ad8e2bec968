import { readFile, writeFile } from "node:fs/promises";
import { pullWebhooks } from "../../../src/signing/index.ts";

const events = pullWebhooks({
  baseUrl: process.env.SEALPOST_URL ?? "http://127.0.0.1:8080",
  apiKey: process.env.SEALPOST_API_KEY, // with the scope analyses:read
  secret: process.env.SIGNING_SECRET,
  // Where it left off; without a cursor, from the oldest event that is kept ("newest": from now on).
  after: await readFile("cursor.txt", "utf8").catch(() => undefined),
  // Everything up to it has been handled. Keep it in your database, beside what you made of the events.
  onCursor: (cursor) => writeFile("cursor.txt", cursor),
  // Nobody answers, or not now: it asks again, for ever.
  onRetry: (error, afterMs) => console.error(error.message, `Asking again in ${afterMs} ms.`),
});
for await (const event of events) {
  console.log("verified", event.id, event.event, event.data.id);
}
