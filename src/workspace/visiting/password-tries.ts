import type { Pool } from "pg";
import { ANSWER_WITHIN_MS } from "../../api/limits.ts";
import { addressBucket } from "../../api/rate-limits.ts";
import type { InTurn } from "../../api/turns.ts";
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

/** `limited`: there were too many wrong ones. */
export type Tried =
  | { readonly kind: "right" }
  | { readonly kind: "wrong" }
  | { readonly kind: "limited"; readonly retryAfterSeconds: number };

/** @throws TemporarilyUnavailable when its turn does not come in time */
export type TryPassword = (
  link: OpenedLink,
  password: string,
  visitor: { readonly address: string; readonly gone: AbortSignal },
) => Promise<Tried>;

/** @param inTurn of everybody's passwords */
export function createPasswordTries(pool: Pool, inTurn: InTurn): TryPassword {
  const count = createRequestCounter(pool);

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

  return (link, password, { address, gone }) => {
    const turn = { waitMs: ANSWER_WITHIN_MS, gone };
    return inTurn(link.accountId, turn, () => tryNow(link, password, address));
  };
}

function limited({ resetMs }: Counted): Tried {
  return { kind: "limited", retryAfterSeconds: Math.max(1, Math.ceil(resetMs / 1_000)) };
}
