import type { TLSSocket } from "node:tls";
import { type CheckedAddressesOptions, createCheckedAddresses } from "../dns/checked-addresses.ts";
import { beforeCut, cutError, startCutoff } from "./cutoff.ts";
import { type ConnectProgress, TargetError } from "./target-error.ts";
import { openTcpToFirst } from "./tcp-connection.ts";
import { createTargetSecureContext, openTls } from "./tls-connection.ts";
import { createTlsSessions } from "./tls-sessions.ts";

/**
 * Opens a verified TLS connection to a checked address of the target; the caller owns the socket.
 * `hostname` and `port` are those of a URL that was judged. Aborting the signal ends the attempt at once.
 * @throws TargetError, with `progress`
 */
export type Connect = (
  target: { readonly hostname: string; readonly port: number },
  signal: AbortSignal,
) => Promise<TargetConnection>;

export type TargetConnection = {
  readonly socket: TLSSocket;
  readonly remoteAddress: string;
  readonly timings: { readonly dnsMs: number; readonly connectMs: number; readonly tlsMs: number };
};

export type ConnectorOptions = CheckedAddressesOptions & {
  /** Certificates in PEM that are trusted besides the public roots. */
  readonly ca?: string | undefined;
  /** Milliseconds for DNS, TCP with all addresses tried, and TLS together. */
  readonly connectTimeoutMs: number;
};

/** @throws Error for a `ca` or an own address that cannot be read */
export function createConnector(options: ConnectorOptions): Connect {
  const findAddresses = createCheckedAddresses(options);
  const secureContext = createTargetSecureContext(options.ca);
  const sessions = createTlsSessions(() => performance.now());

  return async ({ hostname, port }, signal) => {
    const cutoff = startCutoff(signal, options.connectTimeoutMs);
    const cut = cutoff.signal;
    const progress: ConnectProgress = {
      remoteAddress: null,
      timings: { dnsMs: null, connectMs: null, tlsMs: null },
    };
    try {
      const startedAt = performance.now();
      const addresses = await beforeCut(
        () => findAddresses(hostname, port),
        cut,
        () => cutError(cut, "dns_timeout", `No name server answered in time for "${hostname}".`),
      );
      const resolvedAt = performance.now();
      const dnsMs = resolvedAt - startedAt;
      progress.timings.dnsMs = dnsMs;

      const { socket: tcp, address } = await openTcpToFirst(addresses, port, cutoff, progress);
      const connectedAt = performance.now();
      const connectMs = connectedAt - resolvedAt;
      progress.timings.connectMs = connectMs;

      const socket = await openTls(tcp, { host: bareHost(hostname), port, secureContext, sessions, cut });
      const tlsMs = performance.now() - connectedAt;
      return { socket, remoteAddress: address, timings: { dnsMs, connectMs, tlsMs } };
    } catch (error) {
      if (error instanceof TargetError) error.progress = progress;
      throw error;
    } finally {
      cutoff.release();
    }
  };
}

/** A certificate names an IPv6 address without the brackets that a URL needs. */
function bareHost(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}
