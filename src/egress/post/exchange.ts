import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import type { ErrorCode } from "../../model/error-codes.ts";
import { TargetError } from "../connect/target-error.ts";
import { classifyAnswerError, classifyConnectError, classifySlowConnect } from "./classify.ts";
import {
  type Connect,
  type Connection,
  ConnectionEndedError,
  isByReceiver,
  type OpenedConnection,
  type Target,
} from "./connection.ts";
import type { Connections } from "./connections.ts";
import { endWithAnswer, endWithError, type PostEnding } from "./ending.ts";
import type { PostLimits } from "./limits.ts";
import type { PostRequest, PostResult, PostTimings } from "./result.ts";
import type { Member, UnorderedSet } from "./unordered-set.ts";

export type ExchangeSetting = {
  readonly connect: Connect;
  readonly connections: Connections;
  /** Each exchange from when it is made until it is over. */
  readonly inFlight: UnorderedSet<Exchange>;
  readonly limits: PostLimits;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

/**
 * One POST from its start to its result. It is undici's handler itself, since the layers of `client.request`
 * (a promise, a stream, an abort signal) cost a third of the time of a small POST.
 */
export class Exchange implements Dispatcher.DispatchHandler, Member {
  readonly #setting: ExchangeSetting;
  readonly #request: PostRequest;
  readonly #ended: PromiseWithResolvers<PostResult>;
  readonly #startedAtMs: number;
  /** Among those in flight. */
  place = -1;
  #timer: NodeJS.Timeout;
  #isOver = false;

  /** Set while a connection is being made. */
  #connecting: AbortController | null = null;
  #connection: Connection | null = null;
  #isKept = false;
  #remoteAddress: string | null = null;
  readonly #timings: PostTimings = { dnsMs: null, connectMs: null, tlsMs: null, firstByteMs: null };

  #mayHaveWritten = false;
  #sentAtMs = 0;
  #informationalHeadsCount = 0;
  #statusCode = 0;
  /** Null until the answer's head is there. */
  #headers: IncomingHttpHeaders | null = null;
  readonly #excerpt: Buffer[] = [];
  #bodyBytesCount = 0;

  /** `ended` is rejected for a mistake of ours alone: a request that cannot be sent at all. */
  constructor(setting: ExchangeSetting, request: PostRequest, ended: PromiseWithResolvers<PostResult>) {
    this.#setting = setting;
    this.#request = request;
    this.#ended = ended;
    this.#startedAtMs = setting.now();
    this.#timer = setTimeout(onTimeIsUp, request.deadlineMs, this);
    setting.inFlight.add(this);
  }

  start(): void {
    const kept = this.#setting.connections.take(this.#request.url.origin);
    if (kept === undefined) {
      this.#connect();
      return;
    }
    this.#use(kept, true);
    // The receiver may have closed it while the event loop was busy, and a POST on a closed connection is lost. So
    // the loop has to look at its sockets once before: undici waits for one more immediate, and between the two
    // it does.
    setImmediate(() => this.#isOver || this.#send(kept));
  }

  /** Ends it for a reason of ours, at once. An answer whose head is there stands. */
  cut(errorCode: "shut_down"): void {
    if (this.#isOver) return;
    if (this.#headers !== null) this.#answer({ isCut: true });
    else this.#fail(errorCode);
  }

  /** For the timer alone. */
  onTimeIsUp(): void {
    if (this.#isOver) return;
    if (this.#headers !== null) this.#answer({ isCut: true });
    else if (this.#mayHaveWritten) this.#fail("response_timeout");
    else if (this.#connecting === null) this.#fail("connect_timeout");
    else {
      // The connector answers at once with how far it came; if it ever did not, the deadline still holds.
      this.#connecting.abort();
      setImmediate(() => this.#isOver || this.#fail("connect_timeout"));
    }
  }

  #connect(): void {
    const { url } = this.#request;
    const target = { hostname: url.hostname, port: url.port === "" ? 443 : Number(url.port) };
    const connecting = new AbortController();
    this.#connecting = connecting;
    this.#setting.connect(target, connecting.signal).then(
      (opened) => this.#onConnected(target, opened),
      (error: unknown) => this.#onConnectError(error),
    );
  }

  #onConnected(target: Target, opened: OpenedConnection): void {
    // Aborted and yet not over: the connection came about in the very moment of the deadline.
    if (this.#isOver || this.#connecting?.signal.aborted) {
      opened.socket.destroy();
      return;
    }
    this.#connecting = null;
    Object.assign(this.#timings, opened.timings);
    const connection = this.#setting.connections.open(this.#request.url.origin, target, opened);
    this.#use(connection, false);
    this.#send(connection);
  }

  #onConnectError(error: unknown): void {
    if (this.#isOver) return;
    this.#connecting = null;
    if (error instanceof TargetError && error.progress !== null) {
      this.#remoteAddress = error.progress.remoteAddress;
      Object.assign(this.#timings, error.progress.timings);
    }
    // It is not over, so only the deadline can have aborted it.
    const isTimeUp = error instanceof TargetError && error.code === "aborted";
    this.#fail(isTimeUp ? classifySlowConnect(this.#timings) : classifyConnectError(error));
  }

  #use(connection: Connection, isKept: boolean): void {
    this.#connection = connection;
    this.#isKept = isKept;
    this.#remoteAddress = connection.remoteAddress;
  }

  #send(connection: Connection): void {
    const { url, headers, body } = this.#request;
    connection.client.dispatch(
      { method: "POST", path: url.pathname + url.search, headers: headers as Record<string, string>, body },
      this,
    );
  }

  // What undici calls, in this order.

  /** Called just before the first byte is written. */
  onRequestStart(): void {
    this.#mayHaveWritten = true;
    this.#sentAtMs = this.#setting.now();
  }

  onResponseStarted(): void {
    this.#timings.firstByteMs ??= this.#setting.now() - this.#sentAtMs;
  }

  onResponseStart(_controller: unknown, statusCode: number, headers: IncomingHttpHeaders): void {
    if (this.#isOver) return;
    // undici lets "HTTP/1.1 000" and a 101 without an upgrade pass for informational.
    if (statusCode < 102) this.#fail("bad_response");
    else if (statusCode < 200) {
      this.#informationalHeadsCount += 1;
      if (this.#informationalHeadsCount > this.#setting.limits.informationalHeadsMax) {
        this.#fail("response_head_too_large");
      }
    } else {
      this.#statusCode = statusCode;
      this.#headers = headers;
      this.#limitBodyTime();
    }
  }

  onResponseData(_controller: unknown, chunk: Buffer): void {
    if (this.#isOver) return;
    const { excerptBytesMax, responseBytesMax } = this.#setting.limits;
    const room = excerptBytesMax - this.#bodyBytesCount;
    // A copy: the chunk is a window on a much larger buffer.
    if (room > 0) this.#excerpt.push(Buffer.from(chunk.subarray(0, room)));
    this.#bodyBytesCount += chunk.length;
    if (this.#bodyBytesCount > responseBytesMax) this.#answer({ isCut: true });
  }

  onResponseEnd(): void {
    // undici decides whether the connection can go on just after this call.
    queueMicrotask(() => this.#isOver || this.#answer({ isCut: false }));
  }

  onResponseError(_controller: unknown, error: Error): void {
    if (this.#isOver) return;
    if (this.#headers !== null) this.#answer({ isCut: true });
    else if ("code" in error && error.code === "UND_ERR_INVALID_ARG") this.#fault(error);
    else if (this.#isKept) this.#onKeptConnectionEnded(error);
    else this.#fail(classifyAnswerError(originalError(error)));
  }

  #onKeptConnectionEnded(error: Error): void {
    const original = originalError(error);
    if (this.#connection !== null && isByReceiver(original) && this.#timings.firstByteMs === null) {
      this.#setting.connections.distrust(this.#connection);
    }
    // Once a byte may have been written it may have arrived, and sending again is for the next attempt.
    if (this.#mayHaveWritten) this.#fail(classifyAnswerError(original));
    // Still the same attempt: on with the next kept connection, or a fresh one.
    else this.start();
  }

  /** The head has decided what the answer is worth; the body is for the record, and for keeping the connection. */
  #limitBodyTime(): void {
    const { limits, now } = this.#setting;
    const remainingMs = this.#startedAtMs + this.#request.deadlineMs - now();
    if (remainingMs <= limits.bodyReadMs) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(onTimeIsUp, limits.bodyReadMs, this);
  }

  #answer({ isCut }: { isCut: boolean }): void {
    const { connections, limits } = this.#setting;
    if (isCut) this.#endConnection();
    else if (this.#connection !== null) connections.giveBack(this.#connection);
    const body = { chunks: this.#excerpt, bytesCount: this.#bodyBytesCount, isCut };
    this.#finish(endWithAnswer(this.#statusCode, this.#headers ?? {}, body, limits.excerptBytesMax));
  }

  #fail(errorCode: ErrorCode): void {
    this.#connecting?.abort();
    this.#endConnection();
    this.#finish(endWithError(errorCode));
  }

  #finish(ending: PostEnding): void {
    this.#close();
    this.#ended.resolve({
      ...ending,
      remoteAddress: this.#remoteAddress,
      timings: this.#timings,
      durationMs: this.#setting.now() - this.#startedAtMs,
      mayHaveWritten: this.#mayHaveWritten,
    });
  }

  #fault(error: Error): void {
    this.#endConnection();
    this.#close();
    this.#ended.reject(error);
  }

  #close(): void {
    this.#isOver = true;
    this.#setting.inFlight.delete(this);
    clearTimeout(this.#timer);
  }

  #endConnection(): void {
    if (this.#connection === null) return;
    this.#setting.connections.end(this.#connection, new ConnectionEndedError("the POST on it was cut"));
  }
}

function onTimeIsUp(exchange: Exchange): void {
  exchange.onTimeIsUp();
}

/** A connection that ended before the request was begun tells why by its cause. */
function originalError(error: Error): Error {
  return error instanceof ConnectionEndedError && error.cause instanceof Error ? error.cause : error;
}
