/**
 * Who made a change, in audit rows, filters and the API.
 *
 * - `key`: an API key of the account
 * - `staff_key`: support staff, in the name of the account
 * - `command_line`: an operator with access to the database
 */
export const ACTOR_KINDS = ["key", "staff_key", "command_line"] as const;

export type ActorKind = (typeof ACTOR_KINDS)[number];

/** `keyId` null: the command line. */
export type Actor = { readonly kind: ActorKind; readonly keyId: string | null };

export const COMMAND_LINE: Actor = { kind: "command_line", keyId: null };

export function actorOf({ keyId, isStaff }: { readonly keyId: string; readonly isStaff: boolean }): Actor {
  return { kind: isStaff ? "staff_key" : "key", keyId };
}

/** In the audit log only: no operation makes accounts. */
export const ACCOUNT_CREATED = "accounts.create";
