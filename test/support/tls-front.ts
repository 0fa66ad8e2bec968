// TLS in front of a server that speaks none, as a proxy has it in production.
import { type AddressInfo, connect } from "node:net";
import { createServer } from "node:tls";
import { sharedAuthority } from "./certificates.ts";

export type TlsFront = {
  readonly port: number;
  close(): Promise<void>;
};

/** Answers for these host names with the tests' own authority's certificate. @param port where everything goes on to */
export async function startTlsFront(names: readonly string[], port: number): Promise<TlsFront> {
  const authority = await sharedAuthority();
  const { certPem: cert, keyPem: key } = await authority.issue({ names });
  const server = createServer({ cert, key }, (client) => {
    const behind = connect(port, "127.0.0.1");
    for (const [one, other] of [
      [client, behind],
      [behind, client],
    ] as const) {
      one.pipe(other);
      one.on("error", () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
