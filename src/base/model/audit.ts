/**
 * Who made a change, in audit rows, filters and the API.
 *
 * - `key`: an API key of the account
 * - `staff_key`: support staff, in the name of the account
 * - `staff`: the same without a key, as a proxy in front of the console knows them
 * - `command_line`: an operator with access to the database
 */
export const ACTOR_KINDS = ["key", "staff_key", "staff", "command_line"] as const;

export type ActorKind = (typeof ACTOR_KINDS)[number];

/** `keyId` null: the command line, or staff without a key. `session`: of the console; null: none. */
export type Actor = {
  readonly kind: ActorKind;
  readonly keyId: string | null;
  readonly session: { readonly id: string; readonly viewer: string | null } | null;
};

export const COMMAND_LINE: Actor = { kind: "command_line", keyId: null, session: null };

/** The session of the console that a request came by. `hasKey`: false where no key has opened it. */
export type CallerSession = { readonly id: string; readonly viewer: string | null; readonly hasKey: boolean };

type Acting = { readonly keyId: string; readonly isStaff: boolean; readonly session?: CallerSession };

export function actorOf({ keyId, isStaff, session = undefined }: Acting): Actor {
  const told = session === undefined ? null : { id: session.id, viewer: session.viewer };
  if (session?.hasKey === false)
    return { kind: isStaff ? "staff" : "command_line", keyId: null, session: told };
  return { kind: isStaff ? "staff_key" : "key", keyId, session: told };
}

/** In the audit log only: no operation makes, limits, moves or erases accounts, signs staff in, reseals. */
export const ACCOUNT_CREATED = "accounts.create";
export const QUOTAS_SET = "accounts.quota";
export const ACCOUNT_MOVED = "accounts.move";
export const ACCOUNT_ERASED = "accounts.erase";
export const SECRETS_RESEALED = "secrets.reseal";
export const STAFF_SIGNED_IN = "console.staff.sign_in";
