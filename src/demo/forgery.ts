import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";

/**
 * POSTs an event that nobody published, as a stranger would who knows the URL but not the signing secret.
 * Resolves to the status of the answer.
 */
export async function postForgery(
  url: string,
  options: {
    readonly ca: string;
    readonly header: string;
    readonly body: Buffer;
    readonly signal: AbortSignal;
  },
): Promise<number> {
  const { ca, header, body, signal } = options;
  const sending = request(url, {
    method: "POST",
    ca,
    signal,
    agent: false,
    // Names under localhost are this machine, whether or not its resolver knows that.
    lookup: (_hostname, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]),
    headers: { "content-type": "application/json", "extract-signature": header },
  });
  sending.end(body);
  const [response] = (await once(sending, "response")) as [IncomingMessage];
  response.resume();
  return response.statusCode ?? 0;
}
