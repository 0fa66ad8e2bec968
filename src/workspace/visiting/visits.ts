import type { Pool } from "pg";
import { linkState } from "../model/page-links.ts";
import { countVisit, openLink } from "../store/page-visits.ts";
import type { TryPassword } from "./password-tries.ts";
import type { Rendering, ShownVersion } from "./rendering.ts";
import { digestToken, TOKEN } from "./tokens.ts";

/** What a link leads to. `over`: it opens no more; `wrong`, `limited`: of the password that was sent. */
export type Visit =
  | { readonly kind: "unknown" | "over" | "asks" | "wrong" }
  | { readonly kind: "limited"; readonly retryAfterSeconds: number }
  | { readonly kind: "open"; readonly shown: ShownVersion | null };

export type VisitOptions = {
  readonly pool: Pool;
  readonly rendering: Rendering;
  readonly tryPassword: TryPassword;
};

export type Visitor = {
  readonly token: string;
  /** Null: none was sent. */
  readonly password: string | null;
  readonly address: string;
  /** Aborted when nobody waits for the page any more. */
  readonly gone: AbortSignal;
  /** Only wants to know what it would get: nothing is counted, nothing shown. */
  readonly isAsking: boolean;
};

/** Opens a link. A visit is counted once all is there that it shows, and only counted visits show anything. */
export async function visit(options: VisitOptions, visitor: Visitor): Promise<Visit> {
  const { pool, rendering, tryPassword } = options;
  const { token, password, gone, isAsking } = visitor;
  const link = TOKEN.test(token) ? await openLink(pool, digestToken(token)) : null;
  if (link === null) return { kind: "unknown" };
  if (linkState(link) !== "active") return { kind: "over" };
  if (link.passwordHash !== null) {
    if (password === null) return { kind: "asks" };
    const tried = await tryPassword(link, password, visitor);
    if (tried.kind !== "right") return tried;
  }
  if (isAsking) return { kind: "open", shown: null };
  const shown = await rendering.show(link, gone);
  if (await countVisit(pool, link)) return { kind: "open", shown };
  // Meanwhile others made the last visits, or its maker has changed it: whatever it is now.
  return await visit(options, visitor);
}
