import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { Client } from "undici";
import type { OpenedConnection, Target } from "../egress.ts";
import type { PostLimits } from "./limits.ts";

/**
 * One TLS connection with an undici client of its own, lent to one POST at a time: a POST that runs into its deadline
 * is ended by destroying its client, which must not take others with it.
 */
export type Connection = {
  readonly origin: string;
  readonly target: Target;
  readonly remoteAddress: string | null;
  /** When the receiver's certificate expires, in ms since the epoch; null: it could not be read. */
  readonly certificateEndsAtMs: number | null;
  readonly client: Client;
  readonly socket: TLSSocket;
  readonly transport: Socket;
  /** What may have come over the transport by the end of its POST, or of being kept after it. */
  transportBytesAllowed: number;
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

/** The receiver sends without end, if not as an answer. */
export class TransportFloodedError extends Error {
  override readonly name = "TransportFloodedError";
}

/** Whether an idle connection was closed by the receiver, rather than by the idle timeout or by us. */
export function isByReceiver(error: Error): boolean {
  return !(error instanceof ConnectionEndedError) && !("code" in error && error.code === "UND_ERR_INFO");
}

/** Wraps a fresh connection, which must be used at once or ended. */
export function openConnection(
  origin: string,
  target: Target,
  opened: OpenedConnection,
  limits: PostLimits,
  nowMs: number,
): Connection {
  const connection: Connection = {
    origin,
    target,
    remoteAddress: opened.remoteAddress,
    certificateEndsAtMs: opened.socket.getPeerX509Certificate()?.validToDate.getTime() ?? null,
    socket: opened.socket,
    transport: opened.transport,
    transportBytesAllowed: opened.transport.bytesRead + limits.transportBytesMax,
    client: createClient(origin, opened.socket, limits, () => connection.endedBy),
    openedAtMs: nowMs,
    isNewcomer: true,
    idleSinceMs: nowMs,
    endedBy: null,
    beginning: "",
  };
  keepBeginning(connection);
  return connection;
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
function createClient(
  origin: string,
  socket: TLSSocket,
  limits: PostLimits,
  endedBy: () => Error | null,
): Client {
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
