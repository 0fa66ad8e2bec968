// A proxy before an S3 server that passes everything on but copies: those it takes, and never answers.
import { once } from "node:events";
import { createServer, request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";

export type HangingCopies = {
  readonly endpoint: string;
  /** Resolves when the first copy is asked for. */
  readonly begun: Promise<void>;
  /** Resolves when whoever asked for it has hung up. */
  readonly givenUp: Promise<void>;
  close(): Promise<void>;
};

export async function startHangingCopies(endpoint: string): Promise<HangingCopies> {
  const begun = Promise.withResolvers<void>();
  const givenUp = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    const { method, url, headers } = request;
    if (headers["x-amz-copy-source"] !== undefined) {
      request.resume();
      response.on("close", givenUp.resolve);
      begun.resolve();
      return;
    }
    const passed = httpRequest(new URL(url ?? "/", endpoint), { method, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    passed.on("error", () => response.destroy());
    request.pipe(passed);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    begun: begun.promise,
    givenUp: givenUp.promise,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
