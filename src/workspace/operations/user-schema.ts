import { z } from "zod";
import { id } from "../../operations/fields.ts";
import type { StoredUser } from "../store/users.ts";

export const User = z
  .object({ id, email: z.string(), name: z.string(), image_url: z.string().nullable() })
  .meta({ id: "User", description: "A person of the account." });

export function userBody({ id, email, name, imageUrl }: StoredUser): z.output<typeof User> {
  return { id, email, name, image_url: imageUrl };
}

/** As pages name who made them. */
export const Person = z.object({ id, name: z.string(), email: z.string() });

export function personBody({ id, name, email }: StoredUser): z.output<typeof Person> {
  return { id, name, email };
}

/** As documents and folders do. */
export const NamedUser = z.object({ id, name: z.string() });

export function namedUserBody({ id, name }: StoredUser): z.output<typeof NamedUser> {
  return { id, name };
}
