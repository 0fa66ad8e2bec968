// An HTTP CONNECT proxy on 127.0.0.1, or one that fails in a given way.
import { type AddressInfo, connect as connectTcp, createServer, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import type { IssuedCertificate } from "./certificates.ts";

export type EgressProxyOptions = {
  /** In place of a tunnel: what is written on CONNECT; nothing at all for an empty text. */
  answer?: string;
  /** Targets beginning so are never answered, as if nothing listened there; others are served. */
  black?: string;
  /** Ends the connection after the answer. */
  hangsUp?: boolean;
  /** Serves TLS. */
  certificate?: IssuedCertificate;
};

export type TestEgressProxy = {
  readonly port: number;
  /** The heads of the CONNECT requests so far. */
  readonly heads: string[];
  close(): Promise<void>;
};

/** Tunnels go to 127.0.0.1, whatever the name: this proxy's DNS is simple. */
export async function startEgressProxy(options: EgressProxyOptions = {}): Promise<TestEgressProxy> {
  const heads: string[] = [];
  const sockets = new Set<Socket>();

  function track(socket: Socket): Socket {
    sockets.add(socket);
    return socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  }

  function serve(client: Socket): void {
    track(client).once("data", (chunk: Buffer) => {
      const head = chunk.toString("latin1");
      heads.push(head);
      if (options.black !== undefined && head.startsWith(`CONNECT ${options.black}`)) return;
      if (options.answer !== undefined) {
        if (options.hangsUp) client.end(options.answer);
        else client.write(options.answer);
        return;
      }
      const port = Number(/^CONNECT \S+:(\d+) /.exec(head)?.[1]);
      const upstream = track(connectTcp({ host: "127.0.0.1", port }));
      upstream.once("connect", () => {
        client.write("HTTP/1.1 200 Connection established\r\n\r\n");
        client.pipe(upstream).pipe(client);
      });
      upstream.once("error", () => client.end("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"));
      client.on("close", () => upstream.destroy());
    });
  }

  const { certificate } = options;
  const server = certificate
    ? createTlsServer({ key: certificate.keyPem, cert: certificate.certPem }, serve)
    : createServer(serve);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    heads,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
