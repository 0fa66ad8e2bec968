import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import type { ErrorCode } from "../../base/model/error-codes.ts";
import { type Admit, ConnectError, type Egress, type OpenedConnection, type Target } from "../egress.ts";
import { portOf } from "../rules/host.ts";
import {
  type Connection,
  ConnectionEndedError,
  type ConnectionPool,
  createConnectionPool,
  POST_LIMITS,
  type PostLimits,
  speaksOtherProtocol,
  wasClosedByReceiver,
} from "./connection-pool.ts";
import {
  classifyAnswerError,
  classifyConnectError,
  endWithAnswer,
  endWithError,
  type PostEnding,
  type PostResult,
  type PostTimings,
} from "./result.ts";

export type PosterOptions = {
  readonly egress: Egress;
  readonly limits?: Partial<PostLimits>;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

export type Poster = ReturnType<typeof createPoster>;

export function createPoster(options: PosterOptions) {
  const { egress, now } = options;
  const { connect, unsafeAllowedTargets } = egress;
  const limits: PostLimits = { ...POST_LIMITS, ...options.limits };
  const pool = createConnectionPool(unsafeAllowedTargets, limits, now);
  const inFlight = new UnorderedSet<Exchange>();
  const setting = { connect, pool, inFlight, limits, now };
  let isClosed = false;

  return {
    /**
     * POSTs once and says how it ended. Never follows a redirect, never sends again.
     * @throws Error only for a malformed request, which is a programming error
     */
    async post(request: PostRequest): Promise<PostResult> {
      // It could name another host than the one whose certificate was verified.
      if (Object.keys(request.headers).some((name) => name.toLowerCase() === "host"))
        throw new Error("The host header is not to be set.");
      const ended = Promise.withResolvers<PostResult>();
      const exchange = new Exchange(setting, request, ended);
      if (isClosed) exchange.cut("shut_down");
      else exchange.start();
      return await ended.promise;
    },

    /** Cuts what is in flight as `shut_down` and ends all connections; later POSTs end as `shut_down` unsent. */
    async close(): Promise<void> {
      isClosed = true;
      for (const exchange of inFlight.all()) exchange.cut("shut_down");
      pool.endIdle();
    },

    /** `idleConnections`: those of the open ones that wait for the next POST. */
    gauges: () => ({ inFlight: inFlight.size, ...pool.counts() }),
  };
}

export type PostRequest = {
  /** A judged URL: https, without credentials or fragment. */
  readonly url: URL;
  /** Without `host`, `content-length` and `connection`, which the caller must not set. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** As of `Target`; with `admit` no kept connection is used, and what is sent is read when it has admitted. */
  readonly payer?: string;
  readonly admit?: Admit | undefined;
  /** Hides in what is recorded of an answer what a receiver may send back of the request. */
  readonly hide?: ((text: string) => string) | undefined;
  /** For everything from DNS to the answer's head; reading the body must end by then, too. */
  readonly deadlineMs: number;
};

type ExchangeSetting = Pick<Egress, "connect"> &
  Pick<PosterOptions, "now"> & {
    readonly pool: ConnectionPool;
    /** Every exchange that is not over. */
    readonly inFlight: UnorderedSet<Exchange>;
    readonly limits: PostLimits;
  };

/**
 * One POST from its start to its result. It is an undici handler itself, since the layers of `client.request` (a
 * promise, a stream, an abort signal) cost a third of the time of a small POST.
 */
class Exchange implements Dispatcher.DispatchHandler, Member {
  readonly #setting: ExchangeSetting;
  readonly #request: PostRequest;
  readonly #ended: PromiseWithResolvers<PostResult>;
  readonly #startedAtMs: number;
  /** In `inFlight`. */
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
  /** Null until the answer's head was read. */
  #headers: IncomingHttpHeaders | null = null;
  readonly #excerpt: Buffer[] = [];
  #bodyBytesCount = 0;

  /** `ended` is rejected only for a programming error: a request that cannot be sent at all. */
  constructor(setting: ExchangeSetting, request: PostRequest, ended: PromiseWithResolvers<PostResult>) {
    this.#setting = setting;
    this.#request = request;
    this.#ended = ended;
    this.#startedAtMs = setting.now();
    this.#timer = setTimeout(onTimeIsUp, request.deadlineMs, this);
    setting.inFlight.add(this);
  }

  start(): void {
    const { url, payer = url.hostname, admit } = this.#request;
    const kept = admit === undefined ? this.#setting.pool.take(url.origin, payer) : undefined;
    if (kept === undefined) {
      this.#connect();
      return;
    }
    this.#use(kept, true);
    // The receiver may have closed it while the event loop was busy, and a POST on a closed connection is lost. So let
    // the loop poll its sockets first, which it does between this immediate and the one that undici waits for.
    setImmediate(() => this.#isOver || this.#send(kept));
  }

  /** Ends it at once, for a reason of our own. An answer whose head was read counts. */
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
      // The connector rejects at once, with how far it got. Should it not, the deadline holds all the same.
      this.#connecting.abort();
      setImmediate(() => this.#isOver || this.#fail("connect_timeout"));
    }
  }

  #connect(): void {
    const { url, payer, admit } = this.#request;
    const target = { hostname: url.hostname, port: portOf(url), payer, admit };
    const connecting = new AbortController();
    this.#connecting = connecting;
    this.#setting.connect(target, connecting.signal).then(
      (opened) => this.#onConnected(target, opened),
      (error: unknown) => this.#onConnectError(error),
    );
  }

  #onConnected(target: Target, opened: OpenedConnection): void {
    // Aborted and yet not over: the connection was made just as the deadline passed.
    if (this.#isOver || this.#connecting?.signal.aborted) {
      opened.socket.destroy();
      return;
    }
    this.#connecting = null;
    Object.assign(this.#timings, opened.timings);
    const connection = this.#setting.pool.open(this.#request.url.origin, target, opened);
    this.#use(connection, false);
    this.#send(connection);
  }

  #onConnectError(error: unknown): void {
    if (this.#isOver) return;
    this.#connecting = null;
    if (error instanceof ConnectError && error.progress !== null) {
      this.#remoteAddress = error.progress.remoteAddress;
      Object.assign(this.#timings, error.progress.timings);
    }
    this.#fail(classifyConnectError(error));
  }

  #use(connection: Connection, isKept: boolean): void {
    this.#connection = connection;
    this.#isKept = isKept;
    this.#remoteAddress = connection.remoteAddress;
  }

  #send(connection: Connection): void {
    const { url, headers, body, deadlineMs } = this.#request;
    // A process that was frozen meanwhile reads its sockets before its timers, and its lease may be over.
    if (this.#setting.now() - this.#startedAtMs >= deadlineMs) this.onTimeIsUp();
    else
      connection.client.dispatch(
        { method: "POST", path: url.pathname + url.search, headers: headers as Record<string, string>, body },
        this,
      );
  }

  // Called by undici, in this order.

  /** Called just before the first byte is written. */
  onRequestStart(): void {
    this.#mayHaveWritten = true;
    if (this.#connection !== null) this.#connection.beginning = "";
    this.#sentAtMs = this.#setting.now();
  }

  onResponseStarted(): void {
    this.#timings.firstByteMs ??= this.#setting.now() - this.#sentAtMs;
  }

  onResponseStart(_controller: unknown, statusCode: number, headers: IncomingHttpHeaders): void {
    if (this.#isOver) return;
    // undici takes "HTTP/1.1 000", and a 101 without an upgrade, for informational.
    if (statusCode < 102 || (this.#connection !== null && speaksOtherProtocol(this.#connection))) {
      this.#fail("bad_response");
    } else if (statusCode < 200) {
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
    // A copy: the chunk is a view of a much larger buffer.
    if (room > 0) this.#excerpt.push(Buffer.from(chunk.subarray(0, room)));
    this.#bodyBytesCount += chunk.length;
    if (this.#bodyBytesCount > responseBytesMax) this.#answer({ isCut: true });
  }

  onResponseEnd(): void {
    // undici decides just after this call whether the connection can be kept.
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
    if (this.#connection !== null && wasClosedByReceiver(original) && this.#timings.firstByteMs === null) {
      this.#setting.pool.distrust(this.#connection);
    }
    // A byte that may have been written may have arrived, so sending again is for the next attempt.
    if (this.#mayHaveWritten) this.#fail(classifyAnswerError(original));
    // Nothing was sent, so it is still the same attempt: use the next kept connection, or a fresh one.
    else this.start();
  }

  /** The head has decided the outcome. The body is read for the log, and to keep the connection. */
  #limitBodyTime(): void {
    const { limits, now } = this.#setting;
    const remainingMs = this.#startedAtMs + this.#request.deadlineMs - now();
    if (remainingMs <= limits.bodyReadMs) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(onTimeIsUp, limits.bodyReadMs, this);
  }

  #answer({ isCut }: { isCut: boolean }): void {
    const { pool, limits } = this.#setting;
    if (isCut) this.#endConnection();
    else if (this.#connection !== null) pool.giveBack(this.#connection);
    const body = { chunks: this.#excerpt, bytesCount: this.#bodyBytesCount, isCut };
    const { hide } = this.#request;
    const headers = this.#headers ?? {};
    this.#finish(endWithAnswer(this.#statusCode, headers, body, limits.excerptBytesMax, hide));
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
      certificateEndsAtMs: this.#connection?.certificateEndsAtMs ?? null,
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
    this.#setting.pool.end(this.#connection, new ConnectionEndedError("the POST on it was cut"));
  }
}

function onTimeIsUp(exchange: Exchange): void {
  exchange.onTimeIsUp();
}

/** Of a connection that ended before the request was sent, the cause says why. */
function originalError(error: Error): Error {
  return error instanceof ConnectionEndedError && error.cause instanceof Error ? error.cause : error;
}

/** A member's index in its set, which only the set writes. */
type Member = { place: number };

/**
 * A set for members that come and go thousands of times a second, each in one set at most.
 *
 * V8's Set and Map allocate a new table every so many deletions. The old one points to it and, once promoted to the old
 * generation, keeps it and its contents alive until the next full garbage collection, and so on. With a Set of POSTs in
 * flight 15 % of all allocations survived that long; with this it is 1 %.
 */
export class UnorderedSet<Item extends Member> {
  readonly #items: Item[] = [];

  get size(): number {
    return this.#items.length;
  }

  /** A copy: members may leave while it is iterated. */
  all(): Item[] {
    return [...this.#items];
  }

  add(item: Item): void {
    item.place = this.#items.push(item) - 1;
  }

  /** The last member takes its place. Does nothing for what is no member. */
  delete(item: Item): void {
    if (this.#items[item.place] !== item) return;
    const last = this.#items.pop()!;
    if (last === item) return;
    this.#items[item.place] = last;
    last.place = item.place;
  }
}
