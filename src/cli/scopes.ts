import { Mistake } from "./mistake.ts";

/** What a key may be made for; each operation of the API asks for one of these. */
export const scopes = [
  "analyses:publish",
  "analyses:read",
  "operations:read",
  "webhooks:read",
  "webhooks:replay",
  "webhooks:secrets",
  "webhooks:write",
] as const;

/** @throws Mistake for one that there is not. */
export function scopesIn(text: string): readonly string[] {
  const asked = [...new Set(text.split(",").map((scope) => scope.trim()))].sort();
  const unknown = asked.find((scope) => !scopes.some((known) => known === scope));
  if (unknown === undefined) return asked;
  throw new Mistake(`There is no scope "${unknown}": choose from ${scopes.join(", ")}.`);
}
