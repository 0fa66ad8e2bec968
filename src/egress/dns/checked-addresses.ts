import { isIP } from "node:net";
import { TargetError } from "../connect/target-error.ts";
import { createAddressSet, judgeAddress } from "../rules/address.ts";
import { bareHost } from "../rules/host-name.ts";
import { allowsUnsafely, type UnsafeAllowedTargets } from "../rules/unsafe-allowed-targets.ts";
import type { ResolvedAddress, Resolver } from "./resolver.ts";

/**
 * All addresses of a host, at least one, each judged just now: connect to one of these without another lookup, or DNS
 * rebinding can swap it.
 * @throws TargetError target_not_public if any one of them is not public, or what the resolver throws
 */
export type FindCheckedAddresses = (hostname: string, port: number) => Promise<readonly ResolvedAddress[]>;

export type CheckedAddressesOptions = {
  readonly resolver: Resolver;
  readonly unsafeAllowedTargets: UnsafeAllowedTargets;
  /** Addresses and CIDR ranges, public by their number, that are this installation's own. */
  readonly ownAddresses?: readonly string[] | undefined;
};

export function createCheckedAddresses(options: CheckedAddressesOptions): FindCheckedAddresses {
  const { resolver, unsafeAllowedTargets } = options;
  const isOwnAddress = createAddressSet(options.ownAddresses ?? []);

  return async (hostname, port) => {
    const isLifted = allowsUnsafely(unsafeAllowedTargets, hostname, port);
    const addresses = await addressesOf(hostname, isLifted, resolver);
    if (isLifted) return addresses;
    for (const { address } of addresses) {
      const judged = judgeAddress(address);
      if (judged.verdict === "refuse") throw notPublic(hostname, address, judged.reason);
      if (isOwnAddress(address)) throw notPublic(hostname, address, "belongs to this installation");
    }
    return addresses;
  };
}

async function addressesOf(
  hostname: string,
  isLifted: boolean,
  resolver: Resolver,
): Promise<readonly ResolvedAddress[]> {
  // An address literal never reaches DNS, but must be judged like an answer.
  const literal = bareHost(hostname);
  const family = isIP(literal);
  if (family === 4 || family === 6) return [{ address: literal, family }];
  // RFC 6761: localhost is not looked up. Without an unsafely allowed entry for it, it was refused as a URL.
  if (isLifted && (hostname === "localhost" || hostname.endsWith(".localhost"))) {
    return [{ address: "127.0.0.1", family: 4 }];
  }
  return resolver.resolve(hostname);
}

// The address goes into the cause, for the log only: the message is shown to whoever gave the URL, and would tell them
// what a name resolves to inside this network.
function notPublic(hostname: string, address: string, reason: string): TargetError {
  return new TargetError("target_not_public", `"${hostname}" leads to an address that is not public.`, {
    cause: new Error(`${address}: ${reason}`),
  });
}
