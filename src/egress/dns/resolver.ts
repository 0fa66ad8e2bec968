import { BADRESP } from "node:dns";
import { Resolver as DnsResolver } from "node:dns/promises";
import { TtlMap } from "../../model/ttl-map.ts";
import { TargetError } from "../connect/target-error.ts";
import {
  answerOf,
  codeOf,
  conclude,
  type DnsFailureCode,
  type FamilyAnswer,
  type Resolution,
  type ResolvedAddress,
} from "./resolution.ts";

export type Resolver = {
  /**
   * All addresses that DNS has for a name, public or not, IPv4 first; at least one. The answer may be 30 s old and is
   * not judged: whoever connects judges it, every time.
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
export function createResolver(options: ResolverOptions): Resolver {
  const { timeoutMs, now } = options;
  const shared = createDns(options.servers);

  const cache = new TtlMap<string, Resolution>({ entriesMax: CACHED_NAMES_MAX, now });
  const underWay = new Map<string, Promise<Resolution>>();

  /** Never rejects: a failed query is an answer too. */
  async function askFor(hostname: string, family: 4 | 6): Promise<FamilyAnswer> {
    const answer = await answerFrom(shared, hostname, family);
    // A message that c-ares cannot read fails every query under way on its socket, whichever it was the answer to. So
    // each of them is asked once more, on a socket of its own.
    const isUnreadable = "error" in answer && codeOf(answer.error) === BADRESP;
    return isUnreadable ? await answerFrom(createDns(options.servers), hostname, family) : answer;
  }

  async function ask(hostname: string): Promise<Resolution> {
    const asked = [askFor(hostname, 4), askFor(hostname, 6)];
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
    async resolve(hostname) {
      const resolution = cache.get(hostname) ?? (await askOnce(hostname));
      if ("addresses" in resolution) return resolution.addresses;
      throw dnsError(resolution.failure, hostname, resolution.cause);
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

async function answerFrom(dns: DnsResolver, hostname: string, family: 4 | 6): Promise<FamilyAnswer> {
  try {
    const asking =
      family === 4 ? dns.resolve4(hostname, { ttl: true }) : dns.resolve6(hostname, { ttl: true });
    return answerOf(await asking, family);
  } catch (error) {
    return { error };
  }
}

/** Both families' answers; or one with addresses and what came within the grace; or what came before the timeout. */
function collectAnswers(
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
