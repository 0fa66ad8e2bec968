/** A person of the account, as others are shown it. */
export type StoredUser = {
  readonly id: string;
  readonly email: string;
  readonly name: string;
  readonly imageUrl: string | null;
};

/** A `StoredUser` out of a row of sealpost.users. */
export function userOfRow(alias: string): string {
  return `json_build_object('id', ${alias}.id, 'email', ${alias}.email, 'name', ${alias}.name,
    'imageUrl', ${alias}.image_url)`;
}
