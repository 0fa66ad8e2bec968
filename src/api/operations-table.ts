import type { Operation } from "./declarations.ts";

/** The operations as a Markdown table, for the README; a test compares the two. */
export function operationsTable<Tx>(operations: readonly Operation<Tx>[]): string {
  const rows = operations.map(({ key, method, path, scope, risk, effect, mode, summary }) => {
    const cells = [
      `\`${key}\``,
      `\`${method} ${path}\``,
      `\`${scope}\``,
      `${risk}, ${effect}, ${mode}`,
      summary,
    ];
    return `| ${cells.join(" | ")} |`;
  });
  const head = "| Operation | Method and path | Scope | Risk, effect, mode | What it does |";
  return `${[head, "|---|---|---|---|---|", ...rows].join("\n")}\n`;
}
