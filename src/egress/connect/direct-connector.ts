import { connect, type Socket } from "node:net";
import {
  type CheckedAddressesOptions,
  createCheckedAddresses,
  type ResolvedAddress,
} from "../dns/resolver.ts";
import { type Admit, type Connect, ConnectError, type ConnectProgress } from "../egress.ts";
import { isSameAddress } from "../rules/address.ts";
import {
  type ConnectorOptions,
  createConnector,
  type Deadline,
  startDeadline,
  unlessAborted,
  untilEvent,
} from "./connector.ts";
import { tcpError } from "./failures.ts";

/** How many addresses of one name are tried, and what each gets at least of the time left. */
const ADDRESSES_TRIED_MAX = 4;
const ADDRESS_SHARE_MIN_MS = 1_000;

/**
 * Connects to the first address that accepts the connection; the families take turns. Addresses are tried in sequence,
 * not in parallel (Happy Eyeballs): a receiver should see one connection per POST.
 * @param addresses at least one, all of them checked
 * @throws ConnectError of the address whose failure says most
 */
async function openTcpToFirst(
  addresses: readonly ResolvedAddress[],
  port: number,
  deadline: Deadline,
  progress: ConnectProgress,
  admit: Admit | undefined,
): Promise<Socket> {
  const failures: { error: ConnectError; address: string }[] = [];
  const candidates = takeTurns(addresses).slice(0, ADDRESSES_TRIED_MAX);
  for (const [index, candidate] of candidates.entries()) {
    const { address } = candidate;
    progress.remoteAddress = address;
    try {
      await admit?.(address);
      // No failure of the receiver's.
      if (admit && deadline.signal.aborted)
        throw new ConnectError("not_proven", "Its turn came too late.", { isUndecided: true });
      const shareMs = Math.max(ADDRESS_SHARE_MIN_MS, deadline.remainingMs() / (candidates.length - index));
      const share = startDeadline(deadline.signal, shareMs);
      return await openTcp(candidate, port, share.signal).finally(() => share.release());
    } catch (error) {
      if (!(error instanceof ConnectError) || deadline.signal.aborted) throw error;
      if (error.code === "not_proven") {
        if (failures.length === 0 || error.isUndecided) throw error;
        // It was this one's turn only now and then: that another has failed is what is told.
        continue;
      }
      failures.push({ error, address });
    }
  }
  // "No route" often just means that this machine has no IPv6.
  const telling = failures.find(({ error }) => error.code !== "host_unreachable") ?? failures[0];
  if (telling === undefined) throw new Error("There was no address to connect to.");
  progress.remoteAddress = telling.address;
  throw telling.error;
}

/** IPv4, IPv6, IPv4 …, so that a family without a route costs one try. */
function takeTurns(addresses: readonly ResolvedAddress[]): readonly ResolvedAddress[] {
  const ofFamily = (family: 4 | 6) => addresses.filter((address) => address.family === family);
  const [ipv4, ipv6] = [ofFamily(4), ofFamily(6)];
  return addresses.flatMap((_, turn) => [ipv4[turn], ipv6[turn]]).filter((address) => address !== undefined);
}

/** For all sockets: what came is copied, or used up, before the next is read. A new one for each was a cost, and what
 * waits in line is a copy of as much. */
const READ_BUFFER = new Uint8Array(16_384);

/**
 * Connects to exactly this address and writes nothing. What it emits as data is there until the listener returns.
 * @throws ConnectError
 */
export async function openTcp(to: ResolvedAddress, port: number, signal: AbortSignal): Promise<Socket> {
  const socket: Socket = connect({
    host: to.address,
    port,
    family: to.family,
    noDelay: true,
    lookup: refuseLookup,
    onread: {
      buffer: READ_BUFFER,
      callback: (bytes, buffer) => socket.emit("data", buffer.subarray(0, bytes)),
    },
  }).pause();
  const what = `${to.address} port ${port}`;
  const toAbortError = () =>
    new ConnectError("connect_timeout", `${what} did not accept the connection in time.`);
  await untilEvent(socket, "connect", signal, toAbortError, (error) => tcpError(error, to.family, what));
  return refuseOtherPeer(socket, to.address);
}

/**
 * Defence in depth: whatever happened between the address check and this connect (TOCTOU), not one byte of TLS goes to
 * another address.
 * @throws ConnectError target_not_public, or connect_reset if the peer has closed already
 */
export function refuseOtherPeer(socket: Socket, checkedAddress: string): Socket {
  const found = socket.remoteAddress;
  if (found !== undefined && isSameAddress(found, checkedAddress)) return socket;
  socket.destroy();
  if (found === undefined)
    throw new ConnectError("connect_reset", "The connection was reset as soon as it was made.");
  throw new ConnectError(
    "target_not_public",
    "The connection went to a different address than the one checked.",
    {
      cause: new Error(`checked ${checkedAddress}, connected to ${found}`),
    },
  );
}

/** An address needs no lookup. If Node ever did one, DNS rebinding could move the connection to another address. */
function refuseLookup(hostname: string): never {
  throw new Error(`Lookup of "${hostname}" where an address was given.`);
}

export type DirectConnectorOptions = CheckedAddressesOptions & ConnectorOptions;

/**
 * Resolves names itself, and connects to addresses that were judged just before.
 * @throws Error for a `ca` or an own address that cannot be read
 */
export function createDirectConnector(options: DirectConnectorOptions): Connect {
  const findAddresses = createCheckedAddresses(options);
  return createConnector(options, async (target, deadline, progress) => {
    const { hostname, port, admit } = target;
    const startedAtMs = performance.now();
    const addresses = await unlessAborted(
      () => findAddresses(hostname, port),
      deadline.signal,
      () => new ConnectError("dns_timeout", `No name server answered in time for "${hostname}".`),
    );
    progress.timings.dnsMs = performance.now() - startedAtMs;
    return await openTcpToFirst(addresses, port, deadline, progress, admit);
  });
}
