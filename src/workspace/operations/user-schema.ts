import { z } from "zod";
import { id } from "../../operations/fields.ts";
import type { StoredUser } from "../store/users.ts";

export const User = z
  .object({ id, email: z.string(), name: z.string(), image_url: z.string().nullable() })
  .meta({ id: "User", description: "A person of the account." });

export function userBody({ id, email, name, imageUrl }: StoredUser): z.output<typeof User> {
  return { id, email, name, image_url: imageUrl };
}
