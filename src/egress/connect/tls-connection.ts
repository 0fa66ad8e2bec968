import { X509Certificate } from "node:crypto";
import { isIP, type Socket } from "node:net";
import {
  connect,
  createSecureContext,
  getCACertificates,
  type SecureContext,
  type TLSSocket,
} from "node:tls";
import { cutError } from "./cutoff.ts";
import { untilEvent } from "./socket-event.ts";
import { tlsError } from "./tls-failure.ts";
import type { TlsSessions } from "./tls-sessions.ts";

/**
 * One context for all connections: with a `ca` list of its own each would cost 5 ms and 0.9 MB.
 * @param ca certificates in PEM that are trusted besides the public roots
 * @throws Error for what holds no certificate, or one that cannot be read
 */
export function createTargetSecureContext(ca: string | undefined): SecureContext {
  return createSecureContext({
    minVersion: "TLSv1.2",
    ...(ca !== undefined && { ca: [...getCACertificates("default"), ...certificatesIn(ca)] }),
  });
}

/** OpenSSL leaves out what it cannot read without a word; an operator should hear of it at start. */
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
  readonly cut: AbortSignal;
};

/**
 * Makes a connected socket a secure one whose peer has proved to be the host.
 * @throws TargetError
 */
export async function openTls(socket: Socket, options: TlsOptions): Promise<TLSSocket> {
  const { host, port, secureContext, sessions, cut } = options;
  const peer = `${host}:${port}`;
  const earlier = sessions.recall(peer);
  const secured = connect({
    socket,
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
  // Tickets of TLS 1.3 come whenever the peer likes, even while the socket is being closed.
  secured.on("session", (session: Buffer) => {
    if (verifiedAtMs !== null) sessions.remember(peer, { session, verifiedAtMs });
  });
  const toSocketError = (error: Error) => {
    // Whatever failed, a resumption must not be what makes it fail again.
    sessions.forget(peer);
    return tlsError(error, host);
  };
  await untilEvent(secured, "secureConnect", {
    cut,
    toCutError: () => cutError(cut, "tls_timeout", `The TLS handshake with ${host} did not finish in time.`),
    toSocketError,
  });
  // The peer may have ended it in the very packet that finished the handshake.
  if (secured.destroyed) throw toSocketError(secured.errored ?? new Error("closed after the handshake"));
  secured.disableRenegotiation();
  return secured;
}
