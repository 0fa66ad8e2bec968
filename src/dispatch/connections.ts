import type { Socket } from "node:net";
import { Client } from "undici";
import { judgeAddress } from "../target/address.ts";
import { allowsUnsafely, type UnsafeAllowedTargets } from "../target/unsafe-allowed-targets.ts";
import type { PostLimits } from "./post-limits.ts";

/** A fresh connection as a connector hands it over. */
export type OpenedConnection = {
  readonly socket: Socket;
  /** The checked address; null if a proxy chose it. */
  readonly remoteAddress: string | null;
  readonly timings: { readonly dnsMs: number | null; readonly connectMs: number; readonly tlsMs: number };
};

/** `hostname` as in a URL: an IPv6 address stands in brackets. */
export type Target = { readonly hostname: string; readonly port: number };

/**
 * Opens a trustworthy TLS connection to the target. Aborting the signal ends the try at once; the error then
 * does not matter.
 */
export type Connect = (target: Target, signal: AbortSignal) => Promise<OpenedConnection>;

/**
 * One TLS connection with an undici client of its own, lent to one POST at a time. A client for each, because the
 * POST that runs into its deadline must end without its neighbours, and only destroying the client ends it.
 */
export type Connection = {
  readonly origin: string;
  readonly target: Target;
  readonly remoteAddress: string | null;
  readonly client: Client;
  readonly socket: Socket;
  readonly openedAtMs: number;
  /** Why it ended, or null while it is open. */
  endedBy: Error | null;
};

/** A request found its connection ended before a byte of it was written. */
export class ConnectionEndedError extends Error {
  override readonly name = "ConnectionEndedError";
  // undici reconnects for ever on errors that carry one of its own codes.
  readonly code = "SEALPOST_CONNECTION_ENDED";
}

export type ConnectionsOptions = {
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  readonly limits: PostLimits;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type Connections = {
  /** A kept connection to the origin that may be used now, or undefined; it is the caller's until given back. */
  take(origin: string): Connection | undefined;
  /** Makes a fresh connection usable; it is the caller's until given back or ended. */
  open(origin: string, target: Target, opened: OpenedConnection): Connection;
  /** Keeps a connection whose answer was read to its end, if it is fit to be used again. */
  giveBack(connection: Connection): void;
  /** Ends a connection at once, with whatever is under way on it. */
  end(connection: Connection, cause: Error): void;
  endIdle(): void;
  readonly openCount: number;
  readonly idleCount: number;
  /** Origins with a kept connection. */
  readonly originsCount: number;
};

export function createConnections(options: ConnectionsOptions): Connections {
  const { limits, now, unsafeAllowedTargets } = options;
  const open = new Set<Connection>();
  // The same connections twice: the set is in order of idling, so that the first is the one to evict.
  const idle = new Set<Connection>();
  const idleByOrigin = new Map<string, Connection[]>();

  function forgetIdle(connection: Connection): void {
    if (!idle.delete(connection)) return;
    const siblings = idleByOrigin.get(connection.origin) ?? [];
    if (siblings.length > 1) siblings.splice(siblings.lastIndexOf(connection), 1);
    else idleByOrigin.delete(connection.origin);
  }

  function onEnded(connection: Connection, cause: Error): void {
    connection.endedBy ??= cause;
    open.delete(connection);
    forgetIdle(connection);
  }

  function end(connection: Connection, cause: Error): void {
    onEnded(connection, cause);
    connection.client.destroy(cause, () => {});
    connection.socket.destroy();
  }

  function isFit(connection: Connection): boolean {
    return (
      connection.endedBy === null &&
      !connection.socket.destroyed &&
      now() - connection.openedAtMs < limits.connectionAgeMs
    );
  }

  /** Judged at each use, like a fresh answer of DNS. */
  function isStillAllowed({ remoteAddress, target }: Connection): boolean {
    return (
      remoteAddress === null ||
      allowsUnsafely(unsafeAllowedTargets, target.hostname, target.port) ||
      judgeAddress(remoteAddress).verdict === "allow"
    );
  }

  return {
    take(origin) {
      for (;;) {
        // The one used last: the others get the chance to grow old, and the busy one is surest to be alive.
        const connection = idleByOrigin.get(origin)?.at(-1);
        if (connection === undefined) return undefined;
        forgetIdle(connection);
        if (isFit(connection) && isStillAllowed(connection)) return connection;
        end(connection, new ConnectionEndedError("too old to be used again"));
      }
    },

    open(origin, target, opened) {
      const connection: Connection = {
        origin,
        target,
        remoteAddress: opened.remoteAddress,
        socket: opened.socket,
        client: createClient(origin, opened.socket, limits, () => connection.endedBy),
        openedAtMs: now(),
        endedBy: null,
      };
      // Errors are told by the client; without a listener one that comes between two owners ends the process.
      opened.socket.on("error", () => {});
      connection.client.on("disconnect", (_origin, _clients, error) => onEnded(connection, error));
      open.add(connection);
      return connection;
    },

    giveBack(connection) {
      if (!isFit(connection)) {
        end(connection, new ConnectionEndedError("not fit to be kept"));
        return;
      }
      idle.add(connection);
      const siblings = idleByOrigin.get(connection.origin);
      if (siblings === undefined) idleByOrigin.set(connection.origin, [connection]);
      else siblings.push(connection);
      for (const longestIdle of idle) {
        if (idle.size <= limits.idleConnectionsMax) break;
        end(longestIdle, new ConnectionEndedError("evicted"));
      }
    },

    end,

    endIdle() {
      for (const connection of idle) end(connection, new ConnectionEndedError("shut down"));
    },

    get openCount() {
      return open.size;
    },
    get idleCount() {
      return idle.size;
    },
    get originsCount() {
      return idleByOrigin.size;
    },
  };
}

/** A client that lives on this one socket: it never connects by itself, nor again. */
function createClient(
  origin: string,
  socket: Socket,
  limits: PostLimits,
  endedBy: () => Error | null,
): Client {
  let isHandedOver = false;
  return new Client(origin, {
    connect(_options, callback) {
      // Not at once: undici does not expect the answer before it has finished asking.
      queueMicrotask(() => {
        if (isHandedOver) {
          callback(new ConnectionEndedError("the connection has ended", { cause: endedBy() }), null);
          return;
        }
        isHandedOver = true;
        callback(null, socket);
      });
    },
    // Over HTTP/2 a refused stream would send the POST again, and header limits would not hold.
    allowH2: false,
    // The deadline is the POST's own: undici's timers count per chunk, restart at every 1xx and are coarse.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: limits.responseHeadBytesMax,
    maxRequestsPerClient: limits.requestsPerConnectionMax,
    keepAliveTimeout: limits.idleMs,
    // A receiver's Keep-Alive hint may only make it shorter. It closes at the hint; we before that.
    keepAliveMaxTimeout: limits.idleMs,
    keepAliveTimeoutThreshold: 500,
  });
}
