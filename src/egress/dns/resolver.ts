import { Resolver as DnsResolver } from "node:dns/promises";
import { TargetError } from "../connect/target-error.ts";
import { createAddressCache } from "./address-cache.ts";
import {
  answerOf,
  conclude,
  type DnsFailureCode,
  type FamilyAnswer,
  type Resolution,
  type ResolvedAddress,
} from "./resolution.ts";

export type Resolver = {
  /**
   * All addresses that DNS gives for a name, public or not, IPv4 first; at least one. The answer may be up to
   * 30 s old and nobody has judged it: whoever connects does, every time.
   * @throws TargetError dns_not_found, dns_failed or dns_timeout
   */
  resolve(hostname: string): Promise<readonly ResolvedAddress[]>;
};

export type ResolverOptions = {
  /** `address` or `address:port` of each name server; else the system's. */
  readonly servers?: readonly string[] | undefined;
  /** Milliseconds for one name, both families and all retries together. */
  readonly timeoutMs: number;
  /** A monotonic clock in milliseconds, for the cache. */
  readonly now: () => number;
};

// Once one family has addresses, the other is waited for only this long: name servers that drop AAAA queries exist.
const OTHER_FAMILY_GRACE_MS = 250;

// A lost packet is asked for again after 0.5 s, then 1, 2 and 2 s; with several name servers, from the next one.
// Node looks at the clock for that once per first interval, so with 1 s a lost packet would often cost two.
const QUERY_TRIES = 4;
const QUERY_RETRY_FIRST_MS = 500;
const QUERY_RETRY_MAX_MS = 2_000;

/**
 * Asks DNS through c-ares. `dns.lookup` would wait in the thread pool, where six names with dead servers hold up
 * every other one for half a minute; it would also read the hosts file and search domains, where no public target is.
 */
export function createResolver(options: ResolverOptions): Resolver {
  const { timeoutMs, now } = options;
  const dns = new DnsResolver({
    timeout: QUERY_RETRY_FIRST_MS,
    maxTimeout: QUERY_RETRY_MAX_MS,
    tries: QUERY_TRIES,
  });
  if (options.servers !== undefined) dns.setServers(options.servers);

  const cache = createAddressCache(now);
  const underWay = new Map<string, Promise<Resolution>>();

  async function ask(hostname: string): Promise<Resolution> {
    const asked = [
      answerFrom(dns.resolve4(hostname, { ttl: true }), 4),
      answerFrom(dns.resolve6(hostname, { ttl: true }), 6),
    ];
    const resolution = conclude(await gather(asked, timeoutMs));
    cache.put(hostname, resolution);
    return resolution;
  }

  /** Everybody who asks for the same name meanwhile gets the same answer. */
  function askOnce(hostname: string): Promise<Resolution> {
    const asked = underWay.get(hostname);
    if (asked !== undefined) return asked;
    const asking = ask(hostname).finally(() => underWay.delete(hostname));
    underWay.set(hostname, asking);
    return asking;
  }

  return {
    async resolve(hostname) {
      const resolution = cache.get(hostname) ?? (await askOnce(hostname));
      if ("addresses" in resolution) return resolution.addresses;
      throw dnsError(resolution.failure, hostname, resolution.cause);
    },
  };
}

/** Never rejects: a query that failed is an answer too. */
async function answerFrom(
  query: Promise<readonly { address: string; ttl: number }[]>,
  family: 4 | 6,
): Promise<FamilyAnswer> {
  try {
    return answerOf(await query, family);
  } catch (error) {
    return { error };
  }
}

/** The answers of both families, or of one with addresses and what came within the grace, or what came at all. */
function gather(
  asked: readonly Promise<FamilyAnswer>[],
  timeoutMs: number,
): Promise<readonly FamilyAnswer[]> {
  return new Promise((resolve) => {
    const answers: FamilyAnswer[] = [];
    const timers = [setTimeout(finish, timeoutMs)];
    function finish(): void {
      for (const timer of timers) clearTimeout(timer);
      resolve([...answers]);
    }
    for (const asking of asked) {
      void asking.then((answer) => {
        answers.push(answer);
        if (answers.length === asked.length) finish();
        else if ("addresses" in answer) timers.push(setTimeout(finish, OTHER_FAMILY_GRACE_MS));
      });
    }
  });
}

function dnsError(failure: DnsFailureCode, hostname: string, cause: unknown): TargetError {
  const messages: Record<DnsFailureCode, string> = {
    dns_not_found: `DNS knows no address for "${hostname}".`,
    dns_failed: `DNS could not answer for "${hostname}": the name server reported a failure.`,
    dns_timeout: `No name server answered in time for "${hostname}".`,
  };
  return new TargetError(failure, messages[failure], { cause });
}
