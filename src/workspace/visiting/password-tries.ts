import type { Pool } from "pg";
import { addressBucket } from "../../api/rate-limits.ts";
import { inTurns } from "../../api/turn-queue.ts";
import {
  type Counted,
  type CountedPolicy,
  createRequestCounter,
  uncountRequest,
} from "../../store/rate-limits.ts";
import type { OpenedLink } from "../store/page-visits.ts";
import { isPassword } from "./passwords.ts";

/** Wrong passwords of one address for one link, and of all addresses. */
const BY_ADDRESS: CountedPolicy = { requestsMax: 10, windowSeconds: 900 };
const IN_ALL: CountedPolicy = { requestsMax: 200, windowSeconds: 900 };

/** Half of the threads that Node has for such work, so that the rest of the service has the others. */
const AT_ONCE_MAX = 2;
/** Visitors of all links who wait for their turn: the last of them for half a minute. */
const WAITING_MAX = 200;

/** `limited`: there were too many wrong ones; `busy`: others are waiting. */
export type Tried =
  | { readonly kind: "right" }
  | { readonly kind: "wrong" | "busy" }
  | { readonly kind: "limited"; readonly retryAfterSeconds: number };

export type TryPassword = (link: OpenedLink, password: string, address: string) => Promise<Tried>;

/** Accounts take turns, so that nobody's visitors keep others' waiting. */
export function createPasswordTries(pool: Pool): TryPassword {
  const count = createRequestCounter(pool);
  const take = inTurns(AT_ONCE_MAX, (work: () => Promise<void>) => work());
  let waiting = 0;

  /** A try counts before it is known to be wrong: only those of one turn can be beyond the limit by chance. */
  async function tryNow({ id, passwordHash }: OpenedLink, password: string, address: string): Promise<Tried> {
    const all = `page-link:${id}`;
    const own = `${all}:${addressBucket(address)}`;
    const byAddress = await count(own, BY_ADDRESS);
    if (byAddress.requests > BY_ADDRESS.requestsMax) return limited(byAddress);
    // Not before: what an address is refused shuts nobody else out.
    const inAll = await count(all, IN_ALL);
    if (inAll.requests > IN_ALL.requestsMax) return limited(inAll);
    if (passwordHash !== null && !(await isPassword(password, passwordHash))) return { kind: "wrong" };
    await uncountRequest(pool, [own, all]);
    return { kind: "right" };
  }

  return async (link, password, address) => {
    if (waiting >= WAITING_MAX) return { kind: "busy" };
    waiting++;
    try {
      return await new Promise<Tried>((resolve, reject) => {
        take(link.accountId, () => tryNow(link, password, address).then(resolve, reject));
      });
    } finally {
      waiting--;
    }
  };
}

function limited({ resetMs }: Counted): Tried {
  return { kind: "limited", retryAfterSeconds: Math.max(1, Math.ceil(resetMs / 1_000)) };
}
