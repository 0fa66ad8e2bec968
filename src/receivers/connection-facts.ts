import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";

/** What a check's connections showed. Null: there was none, or it did not show this. */
export type ConnectionFacts = {
  /** `TLSv1.3`, … */
  readonly tlsVersion: string | null;
  readonly certificateEndsAt: Date | null;
  /** Null, too, when a proxy chose the address. */
  readonly remoteAddress: string | null;
};

/** Opens a connection to a target, as a connector does. */
export type ProbeConnect = (
  target: { readonly hostname: string; readonly port: number },
  signal: AbortSignal,
) => Promise<{
  readonly socket: Socket;
  readonly remoteAddress: string | null;
  readonly timings: { readonly dnsMs: number | null; readonly connectMs: number; readonly tlsMs: number };
}>;

/** Wraps a connector and records what its first connection showed. */
export function observeConnections(connect: ProbeConnect): {
  readonly connect: ProbeConnect;
  readonly facts: () => ConnectionFacts;
} {
  let facts: ConnectionFacts | null = null;
  return {
    connect: async (target, signal) => {
      const connection = await connect(target, signal);
      facts ??= factsOf(connection);
      return connection;
    },
    facts: () => facts ?? { tlsVersion: null, certificateEndsAt: null, remoteAddress: null },
  };
}

function factsOf({ socket, remoteAddress }: Awaited<ReturnType<ProbeConnect>>): ConnectionFacts {
  if (!(socket instanceof TLSSocket)) return { tlsVersion: null, certificateEndsAt: null, remoteAddress };
  const ends = socket.getPeerX509Certificate()?.validTo;
  return {
    tlsVersion: socket.getProtocol(),
    certificateEndsAt: ends === undefined ? null : new Date(ends),
    remoteAddress,
  };
}
