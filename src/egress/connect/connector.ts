import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import {
  connect,
  createSecureContext,
  DEFAULT_CIPHERS,
  getCACertificates,
  type SecureContext,
  type TLSSocket,
} from "node:tls";
import { TtlMap } from "../../base/model/caches.ts";
import { type Connect, ConnectError, type ConnectProgress, type Target } from "../egress.ts";
import { bareHost } from "../rules/host.ts";
import { tlsError } from "./failures.ts";
import { guardReading, ReadingTurns } from "./reading.ts";

export type ConnectorOptions = {
  /** Certificates in PEM that are trusted besides the public roots. */
  readonly ca?: string | undefined;
  /** Milliseconds for everything together. */
  readonly connectTimeoutMs: number;
};

/** Of handshakes; a usual one takes 1 to 5. In between, everybody's sockets are looked at. */
const HANDSHAKES_TURN_MS = 4;
/** For all connectors, as there is one thread for them. */
const turns = { handshakes: new ReadingTurns(HANDSHAKES_TURN_MS), answers: new ReadingTurns() };

/** Opens what TLS with the target runs on. It notes how far it got, but for the time that all of it took. */
export type OpenTransport = (
  target: Target,
  deadline: Deadline,
  progress: ConnectProgress,
  tls: Pick<TlsOptions, "secureContext" | "sessions">,
) => Promise<Socket>;

/** @throws Error for a `ca` that cannot be read */
export function createConnector(options: ConnectorOptions, openTransport: OpenTransport): Connect {
  const now = () => performance.now();
  const tls = { secureContext: createTargetSecureContext(options.ca), sessions: createTlsSessions(now) };
  return async (target, parent) => {
    const deadline = startDeadline(parent, options.connectTimeoutMs);
    const { signal } = deadline;
    const timings: ConnectProgress["timings"] = { dnsMs: null, connectMs: null, tlsMs: null };
    const progress: ConnectProgress = { remoteAddress: null, timings };
    try {
      const startedAtMs = now();
      const transport = await openTransport(target, deadline, progress, tls);
      const connectedAtMs = now();
      timings.connectMs = connectedAtMs - startedAtMs - (timings.dnsMs ?? 0);
      const { hostname, port } = target;
      const host = bareHost(hostname);
      const payer = target.payer ?? host;
      const { stream, allow, failed } = guardReading(transport, { ...turns, payer });
      const socket = await openTls(stream, { host, port, ...tls, signal }).catch((error: unknown) => {
        failed();
        throw error;
      });
      // What a receiver sends right behind its handshake, such as tickets, is no longer part of it.
      allow(Number.POSITIVE_INFINITY, payer);
      timings.tlsMs = now() - connectedAtMs;
      return { socket, allowAnswer: allow, ...progress };
    } catch (error) {
      if (error instanceof ConnectError) error.progress = progress;
      throw error;
    } finally {
      deadline.release();
    }
  };
}

/** A time limit on some work, within the caller's own abort signal. */
export type Deadline = ReturnType<typeof startDeadline>;

export function startDeadline(parent: AbortSignal, timeoutMs: number) {
  const controller = new AbortController();
  const endsAtMs = performance.now() + timeoutMs;
  const end = () => controller.abort();
  const timer = setTimeout(end, timeoutMs);
  if (parent.aborted) end();
  else parent.addEventListener("abort", end, { once: true });
  return {
    /** Aborts when the time is up or the parent aborts, whichever is first. */
    signal: controller.signal,
    remainingMs: () => Math.max(0, endsAtMs - performance.now()),
    /** Call it when the work is done, or the timer and the listener on the parent stay. */
    release(): void {
      clearTimeout(timer);
      parent.removeEventListener("abort", end);
    },
  };
}

/** The work's result, unless the signal aborts first; its late result is then ignored. Not started after an abort. */
export function unlessAborted<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
  toAbortError: () => ConnectError,
): Promise<T> {
  if (signal.aborted) return Promise.reject(toAbortError());
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(toAbortError());
    signal.addEventListener("abort", onAbort, { once: true });
    work()
      .then(resolve, reject)
      .finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/**
 * Waits for an event of a socket that is being set up. On an error or an abort the socket is destroyed. The socket
 * keeps one error listener for good: an error while it changes hands would otherwise end the process, and so would a
 * second error, after the close, which undici does not expect: TLS over a stream passes errors on and stays open.
 */
export async function untilEvent(
  socket: Socket,
  event: "connect" | "secureConnect",
  signal: AbortSignal,
  toAbortError: () => ConnectError,
  toSocketError: (error: Error) => ConnectError,
): Promise<void> {
  socket.on("error", () => socket.destroy());
  try {
    await once(socket, event, { signal });
  } catch (error) {
    socket.destroy();
    throw signal.aborted ? toAbortError() : toSocketError(error as Error);
  }
}

/** Peers whose sessions are kept; with the next limit at most 8 MiB. */
const PEERS_MAX = 1_000;

/** A usual session has 1.5 to 3 KiB; the ticket in it is the peer's choice and may have 64. */
const SESSION_BYTES_MAX = 8_192;

/** A resumed session skips certificate verification, so this is how late an expired certificate may be noticed. */
const VERIFIED_FOR_MS = 5 * 60_000;

/**
 * Without finite-field Diffie-Hellman: there the peer chooses the group, and one handshake with a modulus of 10,000
 * bits keeps the event loop for a second.
 */
const CIPHERS = `${DEFAULT_CIPHERS}:!DHE`;

/** A TLS session, and when its certificate was verified: in a full handshake, however often resumed since. */
type VerifiedSession = { readonly session: Buffer; readonly verifiedAtMs: number };

export type TlsSessions = ReturnType<typeof createTlsSessions>;

/**
 * TLS session resumption: for a receiver that gets a POST now and then, the next handshake takes about 40 % less CPU
 * (TLS 1.3, P-256), and with TLS 1.2 a round trip less.
 * @param now a monotonic clock in milliseconds
 */
export function createTlsSessions(now: () => number) {
  const byPeer = new TtlMap<string, VerifiedSession>(PEERS_MAX, now);
  return {
    /** The clock of `verifiedAtMs`. */
    now,
    /** Undefined when there is none, or its verification is too old. */
    recall: (peer: string) => byPeer.get(peer),
    remember(peer: string, verified: VerifiedSession): void {
      if (verified.session.length > SESSION_BYTES_MAX) byPeer.delete(peer);
      else byPeer.set(peer, verified, verified.verifiedAtMs + VERIFIED_FOR_MS - now());
    },
    forget: (peer: string) => byPeer.delete(peer),
  };
}

/**
 * Shared by all connections: with a `ca` list, one for each would cost milliseconds and nearly a megabyte.
 * @param ca certificates in PEM that are trusted besides the public roots
 * @throws Error for what holds no certificate, or one that cannot be read
 */
export function createTargetSecureContext(ca: string | undefined): SecureContext {
  return createSecureContext({
    minVersion: "TLSv1.2",
    ciphers: CIPHERS,
    ...(ca !== undefined && { ca: [...getCACertificates("default"), ...certificatesIn(ca)] }),
  });
}

/** OpenSSL silently skips what it cannot read; an operator should learn of it at start. */
function certificatesIn(pem: string): readonly string[] {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----/gs) ?? [];
  if (blocks.length === 0) throw new Error("The additional authorities hold no certificate in PEM.");
  return blocks.map((block, index) => {
    try {
      return new X509Certificate(block).toString();
    } catch (cause) {
      throw new Error(`Certificate ${index + 1} of the additional authorities cannot be read.`, { cause });
    }
  });
}

export type TlsOptions = {
  /** The name, or bare address, that the certificate must be for. */
  readonly host: string;
  readonly port: number;
  readonly secureContext: SecureContext;
  readonly sessions: TlsSessions;
  readonly signal: AbortSignal;
};

/**
 * Does the TLS handshake on a connected stream and verifies that the peer is the host.
 * @throws ConnectError
 */
export async function openTls(stream: Duplex, options: TlsOptions): Promise<TLSSocket> {
  const { host, port, secureContext, sessions, signal } = options;
  const peer = `${host}:${port}`;
  const earlier = sessions.recall(peer);
  const secured = connect({
    socket: stream,
    secureContext,
    // `host` names what the certificate is checked against; SNI must not carry addresses (RFC 6066).
    host,
    ...(isIP(host) === 0 && { servername: host }),
    ...(earlier !== undefined && { session: earlier.session }),
    ALPNProtocols: ["http/1.1"],
    rejectUnauthorized: true,
  });
  let verifiedAtMs: number | null = null;
  secured.once("secureConnect", () => {
    verifiedAtMs = earlier !== undefined && secured.isSessionReused() ? earlier.verifiedAtMs : sessions.now();
  });
  // Tickets of TLS 1.3 arrive whenever the peer sends them, even while the socket is closing.
  secured.on("session", (session: Buffer) => {
    if (verifiedAtMs !== null) sessions.remember(peer, { session, verifiedAtMs });
  });
  const toSocketError = (error: Error) => {
    // Whatever the cause, the next handshake is a full one: a bad session must not fail it again.
    sessions.forget(peer);
    return tlsError(error, host);
  };
  const toAbortError = () =>
    new ConnectError("tls_timeout", `The TLS handshake with ${host} did not finish in time.`);
  await untilEvent(secured, "secureConnect", signal, toAbortError, toSocketError);
  // The peer may have closed in the very packet that finished the handshake.
  if (secured.destroyed) throw toSocketError(secured.errored ?? new Error("closed after the handshake"));
  secured.disableRenegotiation();
  return secured;
}
