import { type CheckedAddressesOptions, createCheckedAddresses } from "../dns/checked-addresses.ts";
import type { Connect } from "../egress.ts";
import { bareHost } from "../rules/host-name.ts";
import { abortError, startDeadline, unlessAborted } from "./deadline.ts";
import { type ConnectProgress, TargetError } from "./target-error.ts";
import { openTcpToFirst } from "./tcp.ts";
import { createTargetSecureContext, createTlsSessions, openTls } from "./tls.ts";

export type DirectConnectorOptions = CheckedAddressesOptions & {
  /** Certificates in PEM that are trusted besides the public roots. */
  readonly ca?: string | undefined;
  /** Milliseconds for DNS, TCP with all addresses tried, and TLS together. */
  readonly connectTimeoutMs: number;
};

/** @throws Error for a `ca` or an own address that cannot be read */
export function createDirectConnector(options: DirectConnectorOptions): Connect {
  const findAddresses = createCheckedAddresses(options);
  const secureContext = createTargetSecureContext(options.ca);
  const sessions = createTlsSessions(() => performance.now());

  return async ({ hostname, port }, parent) => {
    const deadline = startDeadline(parent, options.connectTimeoutMs);
    const { signal } = deadline;
    const progress: ConnectProgress = {
      remoteAddress: null,
      timings: { dnsMs: null, connectMs: null, tlsMs: null },
    };
    try {
      const startedAtMs = performance.now();
      const addresses = await unlessAborted(
        () => findAddresses(hostname, port),
        signal,
        () => abortError(signal, "dns_timeout", `No name server answered in time for "${hostname}".`),
      );
      const resolvedAtMs = performance.now();
      const dnsMs = resolvedAtMs - startedAtMs;
      progress.timings.dnsMs = dnsMs;

      const { socket: tcp, address } = await openTcpToFirst(addresses, port, deadline, progress);
      const connectedAtMs = performance.now();
      const connectMs = connectedAtMs - resolvedAtMs;
      progress.timings.connectMs = connectMs;

      const socket = await openTls(tcp, { host: bareHost(hostname), port, secureContext, sessions, signal });
      const tlsMs = performance.now() - connectedAtMs;
      return { socket, transport: tcp, remoteAddress: address, timings: { dnsMs, connectMs, tlsMs } };
    } catch (error) {
      if (error instanceof TargetError) error.progress = progress;
      throw error;
    } finally {
      deadline.release();
    }
  };
}
