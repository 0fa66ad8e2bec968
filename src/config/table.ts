import { type Variable, variables } from "./variables.ts";

/** The README's table of variables in Markdown, made from their declaration so that it cannot differ. */
export function configurationTable(): string {
  const rows = Object.entries<Variable<unknown>>(variables).map(([name, { fallback, meaning }]) => {
    const shownDefault = fallback === null ? "" : `\`${fallback}\``;
    return `| \`${name}\` | ${shownDefault} | ${meaning.replaceAll("|", "\\|")} |`;
  });
  return ["| variable | default | meaning |", "|---|---|---|", ...rows].join("\n");
}
