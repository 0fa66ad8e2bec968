import type { Connect, OpenedConnection } from "../egress/egress.ts";

/** What a check's connections showed. Null: there was none, or it did not show this. */
export type ConnectionFacts = {
  /** `TLSv1.3`, … */
  readonly tlsVersion: string | null;
  readonly certificateEndsAt: Date | null;
  /** Null, too, when a proxy chose the address. */
  readonly remoteAddress: string | null;
};

/** Wraps a connector and records what its first connection showed. */
export function observeConnections(connect: Connect): {
  readonly connect: Connect;
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

function factsOf({ socket, remoteAddress }: OpenedConnection): ConnectionFacts {
  const ends = socket.getPeerX509Certificate()?.validTo;
  return {
    tlsVersion: socket.getProtocol(),
    certificateEndsAt: ends === undefined ? null : new Date(ends),
    remoteAddress,
  };
}
