import { judgeAddress } from "../rules/address.ts";
import { allowsUnsafely, type UnsafeAllowedTargets } from "../rules/unsafe-allowed-targets.ts";
import {
  type Connection,
  ConnectionEndedError,
  isByReceiver,
  type OpenedConnection,
  openConnection,
  type Target,
} from "./connection.ts";
import { createDistrustedOrigins } from "./connection-distrust.ts";
import type { PostLimits } from "./limits.ts";
import { createSeenOrigins } from "./seen-origins.ts";

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
  /** To be told of a kept connection that its receiver ended, without having said that it would. */
  distrust(connection: Connection): void;
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
  // The same connections twice: the sets are in order of idling, so that the first is the one to evict.
  const idle = new Set<Connection>();
  const idleNewcomers = new Set<Connection>();
  const idleByOrigin = new Map<string, Connection[]>();
  const distrusted = createDistrustedOrigins(limits, now);
  const seen = createSeenOrigins(limits, now);

  function forgetIdle(connection: Connection): void {
    if (!idle.delete(connection)) return;
    idleNewcomers.delete(connection);
    const siblings = idleByOrigin.get(connection.origin) ?? [];
    if (siblings.length > 1) siblings.splice(siblings.lastIndexOf(connection), 1);
    else idleByOrigin.delete(connection.origin);
  }

  function onDisconnect(connection: Connection, error: Error): void {
    const isSoon = idle.has(connection) && now() - connection.idleSinceMs < limits.soonMs;
    if (isSoon && isByReceiver(error)) distrusted.add(connection.origin);
    onEnded(connection, error);
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
        if (isFit(connection) && isStillAllowed(connection)) {
          connection.isNewcomer = false;
          return connection;
        }
        end(connection, new ConnectionEndedError("too old to be used again"));
      }
    },

    open(origin, target, opened) {
      const connection = openConnection(origin, target, opened, limits, now());
      connection.client.on("disconnect", (_origin, _clients, error) => onDisconnect(connection, error));
      open.add(connection);
      return connection;
    },

    giveBack(connection) {
      if (!isFit(connection) || distrusted.has(connection.origin)) {
        end(connection, new ConnectionEndedError("not fit to be kept"));
        return;
      }
      connection.idleSinceMs = now();
      if (connection.isNewcomer) connection.isNewcomer = !seen.see(connection.origin);
      if (connection.isNewcomer) idleNewcomers.add(connection);
      idle.add(connection);
      const siblings = idleByOrigin.get(connection.origin);
      if (siblings === undefined) idleByOrigin.set(connection.origin, [connection]);
      else siblings.push(connection);
      evictBeyond(limits.idleNewcomersMax, idleNewcomers);
      evictBeyond(limits.idleConnectionsMax, idle);
    },

    distrust: ({ origin }) => distrusted.add(origin),
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
