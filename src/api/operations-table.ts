import type { Operation } from "./declarations.ts";

/** The operations as a Markdown table, for the README; a test compares the two. */
export function operationsTable<Tx>(operations: readonly Operation<Tx>[]): string {
  const rows = operations.map(({ key, method, path, scope, risk, effect, mode, summary }) =>
    [`\`${key}\``, `\`${method} ${path}\``, `\`${scope}\``, `${risk}, ${effect}, ${mode}`, summary].join(
      " | ",
    ),
  );
  const head = [
    "Operation | Method and path | Scope | Risk, effect, mode | What it does",
    "---|---|---|---|---",
  ];
  return `${[...head, ...rows].map((row) => `| ${row} |`).join("\n")}\n`;
}
