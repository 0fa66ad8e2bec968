import type { Operation } from "../../src/http/operation.ts";

/** The operations as a Markdown table, for docs/api.md: `npm run docs`. */
export function operationsTable(operations: readonly Operation[]): string {
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
