import { BADRESP, NODATA } from "node:dns";
import { Resolver as DnsResolver } from "node:dns/promises";
import { isIP } from "node:net";
import { TtlMap } from "../../base/model/caches.ts";
import { ConnectError, type ConnectErrorCode } from "../egress.ts";
import { createAddressSet, judgeAddress } from "../rules/address.ts";
import { allowsUnsafely, bareHost, type UnsafeAllowedTargets } from "../rules/host.ts";

export type ResolvedAddress = { readonly address: string; readonly family: 4 | 6 };

type DnsFailure = {
  readonly failure: Extract<ConnectErrorCode, `dns_${string}`>;
  readonly cause: unknown;
};

/** Some addresses, IPv4 first, and for how long to cache them. */
type Addresses = { readonly addresses: readonly ResolvedAddress[]; readonly lifetimeMs: number };

/** What DNS said about one name: addresses, or why there are none. */
type Resolution = Addresses | (DnsFailure & { readonly lifetimeMs: number });

/** The result of one query, for A or for AAAA. */
type FamilyAnswer = Addresses | { readonly error: unknown };

const POSITIVE_LIFETIME_MAX_MS = 30_000;
// A TTL of 0 would cost a query per connection. Caching is safe: addresses are judged at every use.
const POSITIVE_LIFETIME_MIN_MS = 1_000;
const NEGATIVE_LIFETIME_MS = 5_000;

/**
 * One query. c-ares omits `ttl`, which is in seconds, beyond 256 records. There are none, and no error, where an alias
 * leads to a name without addresses of this family.
 */
async function query(dns: DnsResolver, hostname: string, family: 4 | 6): Promise<Addresses> {
  const asking = family === 4 ? dns.resolve4(hostname, { ttl: true }) : dns.resolve6(hostname, { ttl: true });
  const records: readonly { address: string; ttl?: number }[] = await asking;
  if (records.length === 0) throw Object.assign(new Error("the alias leads to no address"), { code: NODATA });
  const lifetimesMs = records.map(({ ttl = 0 }) => ttl * 1_000);
  return {
    addresses: records.map(({ address }) => ({ address, family })),
    lifetimeMs: Math.max(POSITIVE_LIFETIME_MIN_MS, Math.min(POSITIVE_LIFETIME_MAX_MS, ...lifetimesMs)),
  };
}

/** Combines the answers that came in time: two, one or none. */
function conclude(answers: readonly FamilyAnswer[]): Resolution {
  const found = answers.filter((answer) => "addresses" in answer);
  const errors = answers.filter((answer) => "error" in answer).map((answer) => answer.error);
  const isComplete = answers.length === 2;
  if (found.length === 0) return { ...failureOf(errors, isComplete), lifetimeMs: NEGATIVE_LIFETIME_MS };

  const addresses = found
    .flatMap((answer) => answer.addresses)
    .sort((one, other) => one.family - other.family);
  // While one family is unknown the other is good enough to connect to, but both are asked again soon.
  const isWhole = isComplete && errors.every(saysNoSuchRecord);
  const lifetimeMaxMs = isWhole ? POSITIVE_LIFETIME_MAX_MS : NEGATIVE_LIFETIME_MS;
  return { addresses, lifetimeMs: Math.min(lifetimeMaxMs, ...found.map((answer) => answer.lifetimeMs)) };
}

function failureOf(errors: readonly unknown[], isComplete: boolean): DnsFailure {
  const noSuchName = errors.find((error) => codeOf(error) === "ENOTFOUND");
  if (noSuchName !== undefined) return { failure: "dns_not_found", cause: noSuchName };
  const failed = errors.find((error) => !saysNoSuchRecord(error) && !isTimeout(error));
  if (failed !== undefined) return { failure: "dns_failed", cause: failed };
  const timedOut = errors.find(isTimeout);
  if (timedOut !== undefined || !isComplete) return { failure: "dns_timeout", cause: timedOut };
  return { failure: "dns_not_found", cause: errors[0] };
}

/** A name server answered that there is nothing: NXDOMAIN, or no record of this family. */
function saysNoSuchRecord(error: unknown): boolean {
  return codeOf(error) === "ENOTFOUND" || codeOf(error) === "ENODATA";
}

function isTimeout(error: unknown): boolean {
  return codeOf(error) === "ETIMEOUT";
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

export type Resolver = ReturnType<typeof createResolver>;

export type ResolverOptions = {
  /** `address` or `address:port` of each name server; else the system's. */
  readonly servers?: readonly string[] | undefined;
  /** Milliseconds for one name, both families and all retries together. */
  readonly timeoutMs: number;
  /** A monotonic clock in milliseconds, for the cache. */
  readonly now: () => number;
};

// Once one family has addresses, wait only this long for the other: some name servers drop AAAA queries.
const OTHER_FAMILY_GRACE_MS = 250;

// A lost packet is retried after 0.5 s, then 1, 2 and 2 s, each time with the next name server. Node checks the time
// only once per first interval, so with 1 s a lost packet would often cost two.
const QUERY_TRIES = 4;
const QUERY_RETRY_FIRST_MS = 500;
const QUERY_RETRY_MAX_MS = 2_000;

const CACHED_NAMES_MAX = 10_000;
/** More than any honest name has; beyond that a name is not cached. */
const CACHED_ADDRESSES_MAX = 32;

/**
 * Asks DNS through c-ares. `dns.lookup` would use the thread pool, where six names with dead servers hold up every
 * other one for half a minute; it would also read the hosts file and search domains, which have no public target.
 */
export function createResolver(options: ResolverOptions) {
  const { timeoutMs, now } = options;
  const shared = createDns(options.servers);

  const cache = new TtlMap<string, Resolution>(CACHED_NAMES_MAX, now);
  const underWay = new Map<string, Promise<Resolution>>();

  async function ask(hostname: string): Promise<Resolution> {
    const asked = ([4, 6] as const).map((family) =>
      query(shared, hostname, family).catch((error: unknown) => {
        if (codeOf(error) !== BADRESP) throw error;
        // A message that c-ares cannot read fails every query under way on its socket, whichever it was the answer to.
        // So each of them is asked once more, on a socket of its own.
        return query(createDns(options.servers), hostname, family);
      }),
    );
    const resolution = conclude(await collectAnswers(asked, timeoutMs));
    const isCacheable = !("addresses" in resolution) || resolution.addresses.length <= CACHED_ADDRESSES_MAX;
    if (isCacheable) cache.set(hostname, resolution, resolution.lifetimeMs);
    return resolution;
  }

  /** Single-flight: lookups of the same name share one query. */
  function askOnce(hostname: string): Promise<Resolution> {
    const asked = underWay.get(hostname);
    if (asked !== undefined) return asked;
    const asking = ask(hostname).finally(() => underWay.delete(hostname));
    underWay.set(hostname, asking);
    return asking;
  }

  return {
    /**
     * All addresses that DNS has for a name, public or not, IPv4 first; at least one. The answer may be 30 s old and is
     * not judged: whoever connects judges it, every time.
     * @throws ConnectError dns_not_found, dns_failed or dns_timeout
     */
    async resolve(hostname: string): Promise<readonly ResolvedAddress[]> {
      const resolution = cache.get(hostname) ?? (await askOnce(hostname));
      if ("addresses" in resolution) return resolution.addresses;
      throw dnsError(resolution, hostname);
    },
  };
}

function createDns(servers: readonly string[] | undefined): DnsResolver {
  const dns = new DnsResolver({
    timeout: QUERY_RETRY_FIRST_MS,
    maxTimeout: QUERY_RETRY_MAX_MS,
    tries: QUERY_TRIES,
  });
  if (servers !== undefined) dns.setServers(servers);
  return dns;
}

/** Both families' answers; or one with addresses and what came within the grace; or what came before the timeout. */
function collectAnswers(
  asked: readonly Promise<Addresses>[],
  timeoutMs: number,
): Promise<readonly FamilyAnswer[]> {
  return new Promise((resolve) => {
    const answers: FamilyAnswer[] = [];
    const timers = [setTimeout(finish, timeoutMs)];
    function finish(): void {
      for (const timer of timers) clearTimeout(timer);
      resolve([...answers]);
    }
    function take(answer: FamilyAnswer): void {
      answers.push(answer);
      if (answers.length === asked.length) finish();
      else if ("addresses" in answer) timers.push(setTimeout(finish, OTHER_FAMILY_GRACE_MS));
    }
    for (const asking of asked) asking.then(take, (error: unknown) => take({ error }));
  });
}

function dnsError({ failure, cause }: DnsFailure, hostname: string): ConnectError {
  const messages: Record<DnsFailure["failure"], string> = {
    dns_not_found: `DNS knows no address for "${hostname}".`,
    dns_failed: `DNS could not answer for "${hostname}": the name server reported a failure.`,
    dns_timeout: `No name server answered in time for "${hostname}".`,
  };
  return new ConnectError(failure, messages[failure], { cause });
}

/**
 * All addresses of a host, at least one, each judged just now: connect to one of these without another lookup, or DNS
 * rebinding can swap it.
 * @throws ConnectError target_not_public if any one of them is not public, or what the resolver throws
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
    const addresses = knownAddresses(hostname, isLifted) ?? (await resolver.resolve(hostname));
    if (isLifted) return addresses;
    for (const { address } of addresses) {
      const judged = judgeAddress(address);
      if (judged.verdict === "refuse") throw notPublic(hostname, address, judged.reason);
      if (isOwnAddress(address)) throw notPublic(hostname, address, "belongs to this installation");
    }
    return addresses;
  };
}

/** What needs no DNS; null: it does. */
function knownAddresses(hostname: string, isLifted: boolean): readonly ResolvedAddress[] | null {
  // An address literal never reaches DNS, but must be judged like an answer.
  const literal = bareHost(hostname);
  const family = isIP(literal);
  if (family === 4 || family === 6) return [{ address: literal, family }];
  // RFC 6761: localhost is not looked up. Without an unsafely allowed entry for it, it was refused as a URL.
  const isLocal = isLifted && (hostname === "localhost" || hostname.endsWith(".localhost"));
  return isLocal ? [{ address: "127.0.0.1", family: 4 }] : null;
}

// The address goes into the cause, for the log only: the message is shown to whoever gave the URL, and would tell them
// what a name resolves to inside this network.
function notPublic(hostname: string, address: string, reason: string): ConnectError {
  return new ConnectError("target_not_public", `"${hostname}" resolves to an address that is not public.`, {
    cause: new Error(`${address}: ${reason}`),
  });
}
