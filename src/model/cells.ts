/** The name of a cell. The database checks the same pattern. */
export const CELL_NAME = {
  rule: "1 to 32 lowercase letters, digits and hyphens, starting with a letter",
  pattern: /^[a-z][a-z0-9-]{0,31}$/,
} as const;
