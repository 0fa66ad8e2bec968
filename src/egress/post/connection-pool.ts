import { TtlMap } from "../../base/model/caches.ts";
import type { OpenedConnection, Target } from "../egress.ts";
import { judgeAddress } from "../rules/address.ts";
import { allowsUnsafely, type UnsafeAllowedTargets } from "../rules/unsafe-allowed-targets.ts";
import {
  type Connection,
  ConnectionEndedError,
  isByReceiver,
  openConnection,
  TransportFloodedError,
} from "./connection.ts";
import type { PostLimits } from "./limits.ts";

export type ConnectionPoolOptions = {
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  readonly limits: PostLimits;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type ConnectionPool = {
  /** A kept connection to the origin that may be used now, or undefined. The caller gives it back or ends it. */
  take(origin: string): Connection | undefined;
  /** Makes a fresh connection usable. The caller gives it back or ends it. */
  open(origin: string, target: Target, opened: OpenedConnection): Connection;
  /** Keeps a connection whose answer was read to its end, if it can be used again. */
  giveBack(connection: Connection): void;
  /** For a while, keeps no connection to the origin of this one, which its receiver closed unannounced. */
  distrust(connection: Connection): void;
  /** Ends a connection at once, with the POST on it. */
  end(connection: Connection, cause: Error): void;
  endIdle(): void;
  readonly openCount: number;
  readonly idleCount: number;
  /** Origins with a kept connection. */
  readonly originsCount: number;
};

export function createConnectionPool(options: ConnectionPoolOptions): ConnectionPool {
  const { limits, now, unsafeAllowedTargets } = options;
  const open = new Set<Connection>();
  // Both sets in the order of going idle, so that the first one is the one to evict.
  const idle = new Set<Connection>();
  const idleNewcomers = new Set<Connection>();
  const idleByOrigin = new Map<string, Connection[]>();
  // Origins whose receivers close connections unannounced: a POST sent on a closed one fails.
  const distrusted = new TtlMap<string, true>({ entriesMax: limits.distrustedOriginsMax, now });
  // Origins that had a POST so lately that a connection kept since then would still be there.
  const seen = new TtlMap<string, true>({ entriesMax: limits.seenOriginsMax, now });

  function distrust({ origin }: Connection): void {
    distrusted.set(origin, true, limits.distrustMs);
  }

  function isFirstLately(origin: string): boolean {
    const wasSeen = seen.has(origin);
    seen.set(origin, true, limits.idleMs);
    return !wasSeen;
  }

  function forgetIdle(connection: Connection): void {
    if (!idle.delete(connection)) return;
    idleNewcomers.delete(connection);
    const siblings = idleByOrigin.get(connection.origin) ?? [];
    if (siblings.length > 1) siblings.splice(siblings.lastIndexOf(connection), 1);
    else idleByOrigin.delete(connection.origin);
  }

  function onDisconnect(connection: Connection, error: Error): void {
    const isSoon = idle.has(connection) && now() - connection.idleSinceMs < limits.soonMs;
    if (isSoon && isByReceiver(error)) distrust(connection);
    onEnded(connection, error);
  }

  // One timer for all: TLS handles most of its own records without a word to us, so there is no event to count at.
  let watch: NodeJS.Timeout | null = null;

  function startWatch(): void {
    watch ??= setInterval(endFlooded, limits.transportCheckMs).unref();
  }

  function endFlooded(): void {
    for (const connection of open) {
      if (connection.transport.bytesRead > connection.transportBytesAllowed)
        end(connection, new TransportFloodedError("far more came than an answer may have"));
    }
  }

  function onEnded(connection: Connection, cause: Error): void {
    connection.endedBy ??= cause;
    open.delete(connection);
    if (open.size === 0 && watch !== null) {
      clearInterval(watch);
      watch = null;
    }
    forgetIdle(connection);
  }

  function end(connection: Connection, cause: Error): void {
    onEnded(connection, cause);
    connection.client.destroy(cause, () => {});
    connection.socket.destroy();
  }

  function evictBeyond(max: number, kept: ReadonlySet<Connection>): void {
    for (const longestIdle of kept) {
      if (kept.size <= max) return;
      end(longestIdle, new ConnectionEndedError("evicted"));
    }
  }

  function isFit(connection: Connection): boolean {
    return (
      connection.endedBy === null &&
      !connection.socket.destroyed &&
      now() - connection.openedAtMs < limits.connectionAgeMs
    );
  }

  /** The address is judged at every reuse, like a fresh answer of DNS. */
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
        // The last one used: it is the likeliest to be alive, and the others can go idle long enough to be closed.
        const connection = idleByOrigin.get(origin)?.at(-1);
        if (connection === undefined) return undefined;
        forgetIdle(connection);
        if (isFit(connection) && isStillAllowed(connection)) {
          connection.isNewcomer = false;
          connection.transportBytesAllowed = connection.transport.bytesRead + limits.transportBytesMax;
          return connection;
        }
        end(connection, new ConnectionEndedError("too old to be used again"));
      }
    },

    open(origin, target, opened) {
      const connection = openConnection(origin, target, opened, limits, now());
      connection.client.on("disconnect", (_origin, _clients, error) => onDisconnect(connection, error));
      open.add(connection);
      startWatch();
      return connection;
    },

    giveBack(connection) {
      if (!isFit(connection) || distrusted.has(connection.origin)) {
        end(connection, new ConnectionEndedError("not fit to be kept"));
        return;
      }
      connection.idleSinceMs = now();
      if (connection.isNewcomer) connection.isNewcomer = isFirstLately(connection.origin);
      if (connection.isNewcomer) idleNewcomers.add(connection);
      idle.add(connection);
      const siblings = idleByOrigin.get(connection.origin);
      if (siblings === undefined) idleByOrigin.set(connection.origin, [connection]);
      else siblings.push(connection);
      evictBeyond(limits.idleNewcomersMax, idleNewcomers);
      evictBeyond(limits.idleConnectionsMax, idle);
    },

    distrust,
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
