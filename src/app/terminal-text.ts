/** Rows as text, a column as wide as its widest cell; a rule below the first row, which is the head. */
export function textTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  const lines = all.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  "));
  const rule = widths.map((width) => "─".repeat(width)).join("  ");
  return [lines[0], rule, ...lines.slice(1)].map((line) => `  ${line?.trimEnd()}`).join("\n");
}

/** Names and what they stand for, one below the other. */
export function inColumns(rows: Readonly<Record<string, string>>): string {
  const width = Math.max(...Object.keys(rows).map((name) => name.length));
  return Object.entries(rows)
    .map(([name, text]) => `${name.padEnd(width)}  ${text}`)
    .join("\n");
}
