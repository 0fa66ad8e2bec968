import type { Connect, OpenedConnection } from "../egress/egress.ts";

/** What the first connection of a check showed; null for what is unknown. */
export type ConnectionFacts = {
  /** `TLSv1.3`, … */
  readonly tlsVersion: string | null;
  readonly certificateEndsAt: Date | null;
  /** Null, too, when a proxy chose the address. */
  readonly remoteAddress: string | null;
};

/** The same connector, with the facts of its first connection. */
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
