import type { TLSSocket } from "node:tls";
import { Client } from "undici";
import { TtlMap } from "../../base/model/caches.ts";
import type { OpenedConnection, Target } from "../egress.ts";
import { judgeAddress } from "../rules/address.ts";
import { allowsUnsafely, type UnsafeAllowedTargets } from "../rules/host.ts";

/** Limits on one POST and on kept (keep-alive) connections. Times are milliseconds, sizes bytes. */
export const POST_LIMITS = {
  /** Of the answer's body. Beyond that nothing is read, and the connection is closed. */
  responseBytesMax: 65_536,
  /**
   * Of all that comes over a connection for one POST, and while it is kept after it. The limits on an answer do not see
   * what is skipped in reading it: TLS's own records, chunk extensions, empty lines.
   */
  transportBytesMax: 131_072,
  /** Of the answer's header names and values. */
  responseHeadBytesMax: 16_384,
  /** 1xx heads before the real one. A slow flood of them ends at the deadline, a fast one here. */
  informationalHeadsMax: 1_000,
  /** For reading the body, once the head has decided the outcome. */
  bodyReadMs: 2_000,
  /** Of the recorded beginning of the body, as UTF-8. */
  excerptBytesMax: 1_024,
  /** Idle timeout. With 4 s, a receiver whose own is 2 s would fail 2 % of the POSTs. */
  idleMs: 1_500,
  /** So that a receiver that moved to another address is found there. */
  connectionAgeMs: 300_000,
  requestsPerConnectionMax: 1_000,
  /** Over all origins. Connections of POSTs in flight come on top. */
  idleConnectionsMax: 1_000,
  /**
   * Of those, connections to newcomers: origins with one POST lately and no second one within `idleMs`. So a flood of
   * receivers that get one POST each keeps few connections. The same limit for busy origins would cost 200 of them
   * three times the CPU, since three POSTs out of four would need a new handshake.
   */
  idleNewcomersMax: 80,
  /** Origins remembered as having had a POST lately. */
  seenOriginsMax: 10_000,
  /** A receiver that closes a kept connection within this time, without `connection: close`, is distrusted. */
  soonMs: 200,
  /** For how long no connection to it is kept. Not for ever: a restart of a good receiver looks the same. */
  distrustMs: 30_000,
  distrustedOriginsMax: 1_000,
};

export type PostLimits = Readonly<typeof POST_LIMITS>;

/**
 * One TLS connection with an undici client of its own, lent to one POST at a time: a POST that runs into its deadline
 * is ended by destroying its client, which must not take others with it.
 */
export type Connection = Pick<OpenedConnection, "remoteAddress" | "socket" | "allowAnswer"> & {
  readonly origin: string;
  readonly target: Target;
  /** When the receiver's certificate expires, in ms since the epoch; null: it could not be read. */
  readonly certificateEndsAtMs: number | null;
  readonly client: Client;
  readonly openedAtMs: number;
  /** Its origin had one POST lately and no second one: keeping it may not pay. */
  isNewcomer: boolean;
  /** When it was last given back. */
  idleSinceMs: number;
  /** Why it ended, or null while it is open. */
  endedBy: Error | null;
  /** The first characters that came since it was last emptied, but for line ends. */
  beginning: string;
};

const BEGINNING_CHARS = 16;
const CR = 0x0d;
const LF = 0x0a;

/** A request's connection had ended before a byte of the request was written. */
export class ConnectionEndedError extends Error {
  override readonly name = "ConnectionEndedError";
  // undici reconnects for ever after errors that have one of its own codes.
  readonly code = "SEALPOST_CONNECTION_ENDED";
}

/** Whether an idle connection was closed by the receiver, rather than by the idle timeout or by us. */
export function wasClosedByReceiver(error: Error): boolean {
  return !(error instanceof ConnectionEndedError) && !("code" in error && error.code === "UND_ERR_INFO");
}

/**
 * Whether the answer claims to be anything but HTTP/1.0 or 1.1: undici takes other versions, RTSP and ICE for those.
 * Its first head tells, be it an informational one.
 */
export function speaksOtherProtocol({ beginning }: Connection): boolean {
  // Empty if all of it came before the request.
  return beginning !== "" && !/^HTTP\/1\.[01] /.test(beginning);
}

/** undici hands on everything of a status line but the version, and reads its socket in no other way. */
function keepBeginning(connection: Connection): void {
  const { socket } = connection;
  const read = socket.read.bind(socket);
  socket.read = (bytes) => {
    const chunk: Buffer | null = read(bytes);
    const missing = BEGINNING_CHARS - connection.beginning.length;
    if (missing > 0 && chunk !== null) {
      // undici skips line ends before a head.
      const start = connection.beginning === "" ? lineEndsBefore(chunk) : 0;
      connection.beginning += chunk.toString("latin1", start, start + missing);
    }
    return chunk;
  };
}

function lineEndsBefore(chunk: Buffer): number {
  let count = 0;
  while (chunk[count] === CR || chunk[count] === LF) count += 1;
  return count;
}

/** A client for this one socket: it never opens another. */
function createClient(origin: string, socket: TLSSocket, limits: PostLimits, endedBy: () => Error | null) {
  let isHandedOver = false;
  return new Client(origin, {
    connect(_options, callback) {
      // Not synchronously: undici does not expect the callback before `connect` has returned.
      queueMicrotask(() => {
        if (isHandedOver) {
          callback(new ConnectionEndedError("the connection has ended", { cause: endedBy() }), null);
          return;
        }
        isHandedOver = true;
        callback(null, socket);
      });
    },
    // Over HTTP/2 undici re-sends the POST of a refused stream, and does not apply maxHeaderSize.
    allowH2: false,
    // Each POST has its own deadline: undici's timers count per chunk, restart at every 1xx and are coarse.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: limits.responseHeadBytesMax,
    maxRequestsPerClient: limits.requestsPerConnectionMax,
    keepAliveTimeout: limits.idleMs,
    // A receiver's Keep-Alive hint may only shorten the idle timeout, and we close before the receiver does.
    keepAliveMaxTimeout: limits.idleMs,
    keepAliveTimeoutThreshold: 500,
  });
}

export type ConnectionPool = ReturnType<typeof createConnectionPool>;

/**
 * All connections of a poster: those with a POST on them, and those that are kept for the next one.
 * @param now monotonic milliseconds
 */
export function createConnectionPool(
  unsafeAllowedTargets: UnsafeAllowedTargets,
  limits: PostLimits,
  now: () => number,
) {
  const all = new Set<Connection>();
  // Both sets in the order of going idle, so that the first one is the one to evict.
  const idle = new Set<Connection>();
  const idleNewcomers = new Set<Connection>();
  const idleByOrigin = new Map<string, Connection[]>();
  /** Origins whose receivers close connections unannounced: a POST sent on a closed one fails. */
  const distrusted = new TtlMap<string, true>(limits.distrustedOriginsMax, now);
  /** Origins that had a POST so lately that a connection kept since then would still be there. */
  const seen = new TtlMap<string, true>(limits.seenOriginsMax, now);

  /** For a while, keeps no connection to the origin of this one, which its receiver closed unannounced. */
  function distrust({ origin }: Connection): void {
    distrusted.set(origin, true, limits.distrustMs);
  }

  /** Ends a connection at once, with the POST on it. */
  function end(connection: Connection, cause: Error): void {
    onEnded(connection, cause);
    connection.client.destroy(cause, () => {});
    connection.socket.destroy();
  }

  function onEnded(connection: Connection, cause: Error): void {
    connection.endedBy ??= cause;
    all.delete(connection);
    forgetIdle(connection);
  }

  function forgetIdle(connection: Connection): void {
    if (!idle.delete(connection)) return;
    idleNewcomers.delete(connection);
    const siblings = idleByOrigin.get(connection.origin) ?? [];
    if (siblings.length > 1) siblings.splice(siblings.lastIndexOf(connection), 1);
    else idleByOrigin.delete(connection.origin);
  }

  function evictBeyond(max: number, kept: ReadonlySet<Connection>): void {
    for (const longestIdle of kept) {
      if (kept.size <= max) return;
      end(longestIdle, new ConnectionEndedError("evicted"));
    }
  }

  function isFit({ endedBy, socket, openedAtMs }: Connection): boolean {
    return endedBy === null && !socket.destroyed && now() - openedAtMs < limits.connectionAgeMs;
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
    counts: () => ({
      openConnections: all.size,
      idleConnections: idle.size,
      idleOrigins: idleByOrigin.size,
    }),

    /** A kept connection to the origin that may be used now, or undefined. The caller gives it back or ends it. */
    take(origin: string, payer: string): Connection | undefined {
      for (;;) {
        // The last one used: it is the likeliest to be alive, and the others can go idle long enough to be closed.
        const connection = idleByOrigin.get(origin)?.at(-1);
        if (connection === undefined) return undefined;
        forgetIdle(connection);
        const isUsable = isFit(connection) && isStillAllowed(connection);
        if (isUsable && connection.allowAnswer(limits.transportBytesMax, payer)) {
          connection.isNewcomer = false;
          return connection;
        }
        end(connection, new ConnectionEndedError("not fit to be used again"));
      }
    },

    /** Makes a fresh connection usable. The caller gives it back or ends it. */
    open(
      origin: string,
      target: Target,
      { socket, allowAnswer, remoteAddress }: OpenedConnection,
    ): Connection {
      const openedAtMs = now();
      const connection: Connection = {
        origin,
        target,
        remoteAddress,
        certificateEndsAtMs: socket.getPeerX509Certificate()?.validToDate.getTime() ?? null,
        socket,
        allowAnswer,
        client: createClient(origin, socket, limits, () => connection.endedBy),
        openedAtMs,
        isNewcomer: true,
        idleSinceMs: openedAtMs,
        endedBy: null,
        beginning: "",
      };
      allowAnswer(limits.transportBytesMax, target.payer ?? target.hostname);
      keepBeginning(connection);
      connection.client.on("disconnect", (_origin, _clients, error) => {
        const isSoon = idle.has(connection) && now() - connection.idleSinceMs < limits.soonMs;
        if (isSoon && wasClosedByReceiver(error)) distrust(connection);
        onEnded(connection, error);
      });
      all.add(connection);
      return connection;
    },

    /** Keeps a connection whose answer was read to its end, if it can be used again. */
    giveBack(connection: Connection): void {
      const { origin } = connection;
      // Closed right behind its answer, which is seen before it is idle.
      const endedBy = connection.endedBy ?? connection.socket.errored;
      if (endedBy !== null && wasClosedByReceiver(endedBy)) distrust(connection);
      if (!isFit(connection) || distrusted.has(origin)) {
        end(connection, new ConnectionEndedError("not fit to be kept"));
        return;
      }
      connection.idleSinceMs = now();
      if (connection.isNewcomer) {
        connection.isNewcomer = !seen.has(origin);
        seen.set(origin, true, limits.idleMs);
      }
      if (connection.isNewcomer) idleNewcomers.add(connection);
      idle.add(connection);
      const siblings = idleByOrigin.get(origin);
      if (siblings === undefined) idleByOrigin.set(origin, [connection]);
      else siblings.push(connection);
      evictBeyond(limits.idleNewcomersMax, idleNewcomers);
      evictBeyond(limits.idleConnectionsMax, idle);
    },

    distrust,
    end,
    endIdle(): void {
      for (const connection of idle) end(connection, new ConnectionEndedError("shut down"));
    },
  };
}
