import { connect, type Socket } from "node:net";
import type { ResolvedAddress } from "../dns/resolution.ts";
import { isSameAddress } from "../rules/address.ts";
import { type Cutoff, cutError, startCutoff } from "./cutoff.ts";
import { untilEvent } from "./socket-event.ts";
import { type ConnectProgress, TargetError } from "./target-error.ts";
import { tcpError } from "./tcp-failure.ts";

/** Of the addresses of one name, so many are tried, and each gets at least this much of the time that is left. */
const ADDRESSES_TRIED_MAX = 4;
const ADDRESS_SHARE_MIN_MS = 1_000;

/**
 * Connects to the first address that takes the connection; the families take turns. Addresses are tried one after
 * the other, not side by side: a receiver should see one connection per POST.
 * @param addresses at least one, all of them checked
 * @throws TargetError of the address that told most
 */
export async function openTcpToFirst(
  addresses: readonly ResolvedAddress[],
  port: number,
  cutoff: Cutoff,
  progress: ConnectProgress,
): Promise<{ socket: Socket; address: string }> {
  const failures: { error: TargetError; address: string }[] = [];
  const candidates = takeTurns(addresses).slice(0, ADDRESSES_TRIED_MAX);
  for (const [index, candidate] of candidates.entries()) {
    const { address } = candidate;
    progress.remoteAddress = address;
    const shareMs = Math.max(ADDRESS_SHARE_MIN_MS, cutoff.remainingMs() / (candidates.length - index));
    const share = startCutoff(cutoff.signal, shareMs);
    try {
      return { socket: await openTcp(candidate, port, share.signal), address };
    } catch (error) {
      if (!(error instanceof TargetError) || cutoff.signal.aborted) throw error;
      failures.push({ error, address });
    } finally {
      share.release();
    }
  }
  // "No route" often says no more than that this machine has no IPv6.
  const telling = failures.find(({ error }) => error.code !== "host_unreachable") ?? failures[0];
  if (telling === undefined) throw new Error("There was no address to connect to.");
  progress.remoteAddress = telling.address;
  throw telling.error;
}

/** First IPv4, then IPv6, then IPv4 …, so that a family without a route costs one try. */
function takeTurns(addresses: readonly ResolvedAddress[]): readonly ResolvedAddress[] {
  const ofFamily = (family: 4 | 6) => addresses.filter((address) => address.family === family);
  const [ipv4, ipv6] = [ofFamily(4), ofFamily(6)];
  return addresses.flatMap((_, turn) => [ipv4[turn], ipv6[turn]]).filter((address) => address !== undefined);
}

/**
 * Connects to exactly this address and writes nothing.
 * @throws TargetError
 */
export async function openTcp(to: ResolvedAddress, port: number, cut: AbortSignal): Promise<Socket> {
  const socket = connect({ host: to.address, port, family: to.family, noDelay: true, lookup: refuseLookup });
  const what = `${to.address} port ${port}`;
  await untilEvent(socket, "connect", {
    cut,
    toCutError: () => cutError(cut, "connect_timeout", `${what} did not take the connection in time.`),
    toSocketError: (error) => tcpError(error, to.family, what),
  });
  return refuseOtherPeer(socket, to.address);
}

/**
 * The second net under the pin: whatever stands between the checked address and this socket, not one byte of TLS
 * goes to another address.
 * @throws TargetError target_not_public, or connect_reset for a peer that is gone already
 */
export function refuseOtherPeer(socket: Socket, checkedAddress: string): Socket {
  const found = socket.remoteAddress;
  if (found !== undefined && isSameAddress(found, checkedAddress)) return socket;
  socket.destroy();
  if (found === undefined)
    throw new TargetError("connect_reset", "The connection was reset as soon as it came about.");
  throw new TargetError("target_not_public", "The connection led to another address than the one checked.", {
    cause: new Error(`checked ${checkedAddress}, connected to ${found}`),
  });
}

/** An address needs no lookup; if Node ever wants one, the pin would be lost. */
function refuseLookup(hostname: string): never {
  throw new Error(`Lookup of "${hostname}" where an address was given.`);
}
